"""The rules that look at one row at a time: they change it or say why it goes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supertrainer.data.prepare.record import Row, RowFault, shown
from supertrainer.data.prepare.rules import KINDS, Rule
from supertrainer.data.prepare.shapes import Shape, labels, message_text, texts, with_texts

_SPACE = re.compile(r"\s+")
# Control and format characters go, not tab and line ends, nor the joiners that Arabic, Persian and Indic scripts and
# emoji are written with.
_KEPT = {"\t", "\n", "\r", "\u200c", "\u200d"}


@dataclass(frozen=True)
class Dropped:
    """Why a rule takes a row out, and the column that it looked at."""

    field: str
    why: str


Apply = Callable[[Row, Shape], Row | Dropped]


def row_rules(rules: Sequence[Rule]) -> list[tuple[Rule, Apply]]:
    """The rules that look at single rows, in their order, with what each does."""
    return [(rule, _apply(rule)) for rule in rules if not KINDS[rule.name].looks_at_all]


def collapse_whitespace(text: str) -> str:
    """Every run of white space as one space, or as one line end where the run holds one."""
    return _SPACE.sub(lambda run: "\n" if "\n" in run[0] or "\r" in run[0] else " ", text)


def remove_control(text: str) -> str:
    """The text without characters that can't be seen, but for tabs, line ends and joiners."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))


def lengths(row: Row, shape: Shape) -> tuple[int, int]:
    """Characters and words (between white space) of all texts of a row."""
    characters = words = 0
    for _, text in texts(row, shape):
        characters += len(text)
        words += len(text.split())
    return characters, words


def _apply(rule: Rule) -> Apply:
    changes: Mapping[str, Callable[[str], str]] = {
        "strip": str.strip,
        "collapse_whitespace": collapse_whitespace,
        "nfc": lambda text: unicodedata.normalize("NFC", text),
        "remove_control": remove_control,
    }
    if rule.name in changes:
        return lambda row, shape: _changed(row, shape, changes[rule.name])
    if rule.name in ("rename_labels", "map_labels", "keep_labels", "drop_labels"):
        return lambda row, shape: _by_label(row, shape, rule)
    if rule.name in ("min_chars", "max_chars", "min_words", "max_words"):
        return lambda row, shape: _by_length(row, shape, rule)
    if rule.name == "drop_empty":
        return _drop_empty
    pattern = re.compile(rule.value)
    return lambda row, shape: _drop_matching(row, shape, pattern)


def _changed(row: Row, shape: Shape, change: Callable[[str], str]) -> Row:
    changed = with_texts(row, shape, change)
    for name, kind in shape.columns.items():
        if kind == "tokens" and (empty := [n for n, word in enumerate(changed[name], start=1) if not word]):
            raise RowFault(f"{name}[{empty[0]}]", f"{shown(row[name][empty[0] - 1])} is empty after cleaning")
    return changed


def _drop_empty(row: Row, shape: Shape) -> Row | Dropped:
    for name, kind in shape.columns.items():
        if kind == "text" and not row[name].strip():
            return Dropped(name, "is empty")
        if kind in ("tokens", "messages") and not row[name]:
            return Dropped(name, "is empty")
        for number, message in enumerate(row[name] if kind == "messages" else ()):
            if not message_text(message).strip() and not _calls_or_shows(message):
                return Dropped(f"{name}[{number}]", "is empty")
    return row


def _calls_or_shows(message: Mapping[str, Any]) -> bool:
    """Whether a message without text has something else: a call of a tool, or a picture."""
    content = message["content"]
    return "tool_calls" in message or (isinstance(content, list) and any(p["type"] == "image" for p in content))


def _drop_matching(row: Row, shape: Shape, pattern: re.Pattern[str]) -> Row | Dropped:
    for name, text in texts(row, shape):
        if found := pattern.search(text):
            return Dropped(name, f"holds {shown(found[0])}")
    return row


def _by_length(row: Row, shape: Shape, rule: Rule) -> Row | Dropped:
    characters, words = lengths(row, shape)
    least, what = rule.name.split("_")
    count = characters if what == "chars" else words
    if count < rule.value if least == "min" else count > rule.value:
        return Dropped(next(name for name, _ in texts(row, shape)), f"has {count} {what}")
    return row


def _by_label(row: Row, shape: Shape, rule: Rule) -> Row | Dropped:
    have = labels(row, shape)
    field = next((name for name, kind in shape.columns.items() if kind in ("label", "labels", "tags")), "label")
    match rule.name:
        case "keep_labels":
            strange = [label for label in have if label not in rule.value]
            return Dropped(field, f"is {strange[0]!r}") if strange else row
        case "drop_labels":
            named = [label for label in have if label in rule.value]
            return Dropped(field, f"is {named[0]!r}") if named else row
        case "map_labels":
            strange = [label for label in have if label not in rule.value]
            if strange:
                return Dropped(field, f"is {strange[0]!r}, which isn't listed")
    return {**row, **{name: _renamed(row[name], kind, rule.value) for name, kind in shape.columns.items()}}


def _renamed(value: Any, kind: str, names: Mapping[str, str]) -> Any:
    match kind:
        case "label":
            return names.get(value, value)
        case "labels":
            return list(dict.fromkeys(names.get(label, label) for label in value))
        case "tags":
            return [f"{t[:2]}{names.get(t[2:], t[2:])}" if t[:2] in ("B-", "I-") else names.get(t, t) for t in value]
    return value
