"""Overrides: parsed one by one, told apart (group choice, value, Hydra's own), and checked against what there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException

from supertrainer.config.cluster import LAUNCHER_PARAMETERS
from supertrainer.config.groups import Groups
from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError, Problem

ENVIRONMENT_PREFIX = "SUPERTRAINER__"
_HYDRA_GROUPS_OF_OURS = {"hydra/launcher"}


@dataclass
class Overrides:
    """What the command line and the environment ask for, told apart.

    Attributes:
        choices: group choices from the command line, `group[@package]` -> option (None: deleted).
        environment_choices: the same from the environment; a command-line choice of the same group wins.
        values: dotted overrides from the command line, in order.
        environment_values: the same from the environment.
        hydra: Hydra's own settings (`hydra/launcher=…`, `hydra.launcher.…`), as written.
        origins: where each environment override came from, for messages.
    """

    choices: dict[str, str | None] = field(default_factory=dict)
    environment_choices: dict[str, str | None] = field(default_factory=dict)
    values: list[Override] = field(default_factory=list)
    environment_values: list[Override] = field(default_factory=list)
    hydra: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def all_choices(self) -> dict[str, str | None]:
        return self.environment_choices | self.choices


def parse_override(text: str) -> Override:
    """One override.

    Raises:
        ConfigError: it isn't one, with what is likely meant.
    """
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"{text}: not an override.", why="settings are written key=value.", fix=f"{text}=VALUE?")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        key, _, value = text.partition("=")
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{text}: can't be parsed ({reason}).",
            why="spaces, quotes, brackets, commas and = in a value need quotes.",
            fix=f"'{key}=\"{value}\"'" if '"' not in value else f"\"{key}='{value}'\"",
        ) from error


def read_overrides(
    words: Iterable[str], *, environment: Mapping[str, str], groups: Groups
) -> tuple[Overrides, list[Problem]]:
    """Tells the overrides of a command and of the environment apart, and checks every group choice.

    Returns:
        What could be understood, and everything that is wrong with the rest.
    """
    found: Overrides = Overrides()
    problems: list[Problem] = []
    for name, text in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            try:
                _sort_in(_from_environment(name, text, groups), found, groups, origin=name)
            except ConfigError as error:
                problems += [Problem(f"{name}: {problem.what}", problem.why, problem.fix) for problem in error.problems]
    for word in words:
        try:
            _sort_in(parse_override(word), found, groups, origin=None)
        except ConfigError as error:
            problems += error.problems
    return found, problems


def _from_environment(name: str, text: str, groups: Groups) -> Override:
    key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
    group = _group_at(key, text, groups)
    if group is not None:
        return parse_override(f"{group}={text}")
    try:
        return parse_override(f"{key}={text}")
    except ConfigError:  # a shell user quotes for the shell, not for Hydra: what doesn't parse is a string
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return parse_override(f'{key}="{escaped}"')


def _group_at(key: str, text: str, groups: Groups) -> str | None:
    """The group that an environment variable chooses from: `tracker`, or `…/model_kwargs@trainer.model_kwargs`."""
    if "." not in key:
        return key if key in groups else None
    node, _, leaf = key.rpartition(".")
    nested = f"{node.split('.')[0]}/common/{leaf}"
    return f"{nested}@{key}" if text in groups.options.get(nested, ()) else None


def _sort_in(override: Override, found: Overrides, groups: Groups, *, origin: str | None) -> None:
    key = override.key_or_group
    if key.split(".")[0].split("/")[0] == "hydra":
        found.hydra.append(_checked_hydra(override))
        return
    if key in groups or "/" in key:
        name = key if override.package is None else f"{key}@{override.package}"
        choices = found.choices if origin is None else found.environment_choices
        choices[name] = _checked_choice(override, groups)
    else:
        if override.is_sweep_override():
            raise ConfigError(
                f"{override.input_line}: several values for one run.",
                fix="add --multirun to run each, or quote the value if the comma belongs to it.",
            )
        (found.values if origin is None else found.environment_values).append(override)
    if origin is not None:
        found.origins[key] = origin


def _checked_hydra(override: Override) -> str:
    key, text = override.key_or_group, str(override.input_line)
    if key.startswith("hydra/") and key not in _HYDRA_GROUPS_OF_OURS:
        raise ConfigError(
            f"{text}: {key} is not open to choice.",
            why="runs and sweeps have one directory and one log of ours.",
            fix="hydra/launcher=… is the one to choose.",
        )
    if key.startswith("hydra.") and (not key.startswith("hydra.launcher.") or key.endswith("._target_")):
        raise ConfigError(
            f"{text}: {key} is not open to setting.",
            why="runs and sweeps have one directory and one log of ours.",
            fix="run.root sets where runs go; hydra.launcher.* sets the launcher.",
        )
    parameter = key.removeprefix("hydra.launcher.").partition(".")[0]
    if key.startswith("hydra.launcher.") and parameter not in LAUNCHER_PARAMETERS:
        raise ConfigError(
            f"{text}: the launchers have no {parameter!r}.", fix=did_you_mean(parameter, LAUNCHER_PARAMETERS)
        )
    return text


def _checked_choice(override: Override, groups: Groups) -> str | None:
    group, value = override.key_or_group, override.value()
    if group not in groups:
        raise ConfigError(
            f"{override.input_line}: there is no config group {group!r}.", fix=did_you_mean(group, groups.options)
        )
    if override.type == OverrideType.DEL:
        return None
    if override.is_sweep_override():
        raise ConfigError(f"{override.input_line}: several options for one run.", fix="add --multirun to run each.")
    if not isinstance(value, str):
        raise ConfigError(
            f"{override.input_line}: {value!r} is no option of {group!r}.",
            fix=f"{did_you_mean('', groups.options[group])} (~{group} leaves it out).",
        )
    if value not in groups.options[group]:
        raise ConfigError(
            f"{override.input_line}: {group!r} has no option {value!r}.", fix=did_you_mean(value, groups.options[group])
        )
    return value
