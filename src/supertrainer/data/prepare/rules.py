"""The declared rules of cleaning: which there are, and how they are read from a command or a YAML file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError, Problem, raise_all


@dataclass(frozen=True)
class Rule:
    """One rule, with its value where it takes one."""

    name: str
    value: Any = None

    def __str__(self) -> str:
        if self.value is None:
            return self.name
        value = self.value
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        return f"{self.name}={shown}"


@dataclass(frozen=True)
class RuleKind:
    """What a rule does, the value it takes (None: none) and what checks that value."""

    does: str
    takes: str | None = None
    check: Callable[[Any], Any] | None = None
    default: Any = None
    looks_at_all: bool = False


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number of at least 1")
    return value


def _names(value: Any) -> tuple[str, ...]:
    value = value if isinstance(value, list) else [value]
    if not value or any(isinstance(item, bool) or not isinstance(item, str | int) for item in value):
        raise ValueError("a list of labels, [a, b] (YAML's yes, no, on and off in quotes)")
    return tuple(str(item) for item in value)


def _mapping(value: Any) -> dict[str, str]:
    scalar = (str, int)
    if (
        not isinstance(value, dict)
        or not value
        or any(isinstance(v, bool) or not isinstance(v, scalar) for pair in value.items() for v in pair)
    ):
        raise ValueError("old names with new ones, {old: new} (YAML's yes, no, on and off in quotes)")
    return {str(old): str(new) for old, new in value.items()}


def _how(value: Any) -> str:
    if value not in ("exact", "normalised"):
        raise ValueError("exact or normalised")
    return str(value)


def _pattern(value: Any) -> str:
    try:
        re.compile(value)
    except (re.error, TypeError):
        raise ValueError("a regular expression") from None
    return str(value)


# In the order in which help and documentation list them. Rules that change texts or labels, rules that drop a row by
# what is in it, rules that look at all rows.
KINDS: Mapping[str, RuleKind] = {
    "strip": RuleKind("takes white space from both ends of every text"),
    "collapse_whitespace": RuleKind("makes every run of white space one space (a line end where the run holds one)"),
    "nfc": RuleKind("writes composed characters (Unicode NFC): é is one character, not e and an accent"),
    "remove_control": RuleKind("removes control, zero-width and bidirectional marks; tabs, line ends and joiners stay"),
    "rename_labels": RuleKind("renames labels and entity types; others stay", "{old: new}", _mapping),
    "map_labels": RuleKind("renames labels; a row with one that isn't listed is dropped", "{old: new}", _mapping),
    "keep_labels": RuleKind("drops rows with any other label", "[a, b]", _names),
    "drop_labels": RuleKind("drops rows with one of these labels", "[a, b]", _names),
    "drop_empty": RuleKind("drops rows with a text that is empty or white space alone"),
    "min_chars": RuleKind("drops rows whose texts together are shorter", "N", _count),
    "max_chars": RuleKind("drops rows whose texts together are longer", "N", _count),
    "min_words": RuleKind("drops rows whose texts together have fewer words between white space", "N", _count),
    "max_words": RuleKind("drops rows whose texts together have more words", "N", _count),
    "drop_matching": RuleKind("drops rows with a text in which the regular expression is found", "REGEX", _pattern),
    "drop_duplicates": RuleKind(
        "drops rows that repeat an earlier one of their split; normalised: letter case, punctuation, white space and "
        "compatibility forms aside",
        "exact|normalised",
        _how,
        default="exact",
        looks_at_all=True,
    ),
    "drop_conflicts": RuleKind("drops all rows of a text that stands with different labels", looks_at_all=True),
    "drop_rare_labels": RuleKind("drops rows with a label that fewer than N rows have", "N", _count, looks_at_all=True),
}
DEFAULT = (Rule("strip"), Rule("drop_empty"), Rule("drop_duplicates", "exact"))


def parse_rules(words: Sequence[str]) -> tuple[Rule, ...]:
    """Rules of a command: `strip`, `min_chars=10`, `rename_labels={1: bad}`; `none` alone stands for no rule.

    Raises:
        ConfigError: every rule that can't be read.
    """
    if list(words) == ["none"]:
        return ()
    items: list[Any] = []
    for word in words:
        name, equals, value = word.partition("=")
        try:
            items.append({name: value if name == "drop_matching" else yaml.safe_load(value)} if equals else name)
        except yaml.YAMLError:
            raise ConfigError(f"--clean {word}: the value is no YAML.", fix=f"{name}={_takes(name)}") from None
    return _rules(items, where="--clean")


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Rules of a YAML file: a list of `strip`, `min_chars: 10`, `rename_labels: {1: bad}`.

    Raises:
        ConfigError: the file isn't there or is no list of rules.
    """
    try:
        items = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--rules {path}: {' '.join(str(error).split())}.", fix="a YAML file.") from None
    if not isinstance(items, list):
        raise ConfigError(f"--rules {path} holds no list.", fix="a rule a line: - strip")
    return _rules(items, where=f"--rules {path}")


def rules_help() -> str:
    """Every rule with what it does, a line each."""
    lines = [f"  {name}{f'={kind.takes}' if kind.takes else ''}".ljust(36) + kind.does for name, kind in KINDS.items()]
    return "\n".join(lines)


def _rules(items: Sequence[Any], *, where: str) -> tuple[Rule, ...]:
    problems: list[Problem] = []
    rules: list[Rule] = []
    for item in items:
        name, value = next(iter(item.items())) if isinstance(item, dict) and len(item) == 1 else (item, None)
        kind = KINDS.get(name) if isinstance(name, str) else None
        if kind is None:
            problems.append(Problem(f"{where}: there is no rule {name!r}.", fix=did_you_mean(str(name), list(KINDS))))
            continue
        if name in {rule.name for rule in rules} and kind.looks_at_all:
            problems.append(Problem(f"{where}: {name} stands twice.", fix="once."))
        value = kind.default if value is None else value
        if (value is None) != (kind.takes is None):
            fix = f"{name}={kind.takes}" if kind.takes else name
            problems.append(Problem(f"{where}: {name} takes {'no' if kind.takes is None else 'a'} value.", fix=fix))
            continue
        try:
            rules.append(Rule(name, kind.check(value) if kind.check else None))
        except ValueError as error:
            problems.append(Problem(f"{where}: {name}={value} is not {error}.", fix=f"{name}={kind.takes}"))
    raise_all(ConfigError, problems)
    return tuple(rules)


def _takes(name: str) -> str:
    return (KINDS[name].takes if name in KINDS else None) or "VALUE"
