"""Composition: group defaults < experiment < mode < the user's file < environment < command line.

Hydra composes the groups. Dotted values are laid on top here, in the order above, so that a group chosen on the command
line beats the values of an experiment, a mode or the environment too, which plain Hydra would apply after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from supertrainer.config.command import Command
from supertrainer.config.groups import Groups
from supertrainer.config.hydra_compose import HydraComposer, plain
from supertrainer.config.nearest import did_you_mean
from supertrainer.config.overrides import Overrides, read_overrides
from supertrainer.config.resolvers import register_resolvers
from supertrainer.config.snapshot import Source, read_source
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, Problem, raise_all

_GLOBAL_GROUPS = ("experiment", "mode")  # their options are laid over the whole tree, not under a key


@dataclass(frozen=True)
class Composed:
    """A composed tree, not yet validated.

    Attributes:
        tree: the job's config, interpolations unresolved.
        hydra: Hydra's own node (the launcher's settings).
        origins: dotted key -> the environment variable that set it.
        problems: what was wrong with single overrides; the tree is composed without them.
    """

    tree: DictConfig
    hydra: DictConfig
    origins: Mapping[str, str]
    problems: tuple[Problem, ...]


def compose(command: Command, *, environment: Mapping[str, str], groups: Groups, composer: HydraComposer) -> Composed:
    """Composes the config that a command asks for.

    Raises:
        ConfigError: no experiment that is there, or an unreadable file: nothing to compose.
    """
    register_resolvers()
    source = read_source(command.source) if command.source else None
    whole = source is not None and source.is_whole
    asked, problems = read_overrides(command.overrides, environment={} if whole else environment, groups=groups)
    try:
        if source is not None and whole:
            tree, hydra = _over_whole_file(source, asked, composer)
        else:
            tree, hydra = _over_experiment(source, asked, composer, groups)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    problems += _apply(tree, asked.values)
    return Composed(tree=tree, hydra=hydra, origins=asked.origins, problems=tuple(problems))


def _over_experiment(
    source: Source | None, asked: Overrides, composer: HydraComposer, groups: Groups
) -> tuple[DictConfig, DictConfig]:
    in_file = source.choices if source is not None else {}
    raise_all(ConfigError, _unknown_choices(in_file, groups))
    choices = {**in_file, **asked.all_choices}
    if not choices.get("experiment"):
        raise ConfigError(list(_no_experiment(asked, groups)))
    tree, hydra = composer.root([*map(_choice_word, choices.items()), *asked.hydra])
    if mode := _mode_of_its_own(hydra, choices, groups):
        tree, hydra = composer.root([*map(_choice_word, {**choices, "mode": mode}.items()), *asked.hydra])
    tree.run.experiment = choices["experiment"]
    if source is not None:
        tree.merge_with(OmegaConf.create(dict(source.values)))
    _apply(tree, asked.environment_values)  # set, never deleted: nothing to report
    for group, option in asked.choices.items():
        if option is not None and group not in _GLOBAL_GROUPS:
            package = group.partition("@")[2] or group.replace("/", ".")
            OmegaConf.update(tree, package, _body(groups, group, option), merge=True, force_add=True)
    return tree, hydra


def _mode_of_its_own(hydra: DictConfig, choices: Mapping[str, str | None], groups: Groups) -> str | None:
    """What `mode=toy` stands for where the chosen trainer's family has a mode of its own: its keys are others."""
    family = str(hydra.runtime.choices.get("trainer")).partition("/")[0]
    mode = f"common/{family}/{choices.get('mode') or 'full'}"
    return mode if f"mode/{mode}" in groups.files else None


def _over_whole_file(source: Source, asked: Overrides, composer: HydraComposer) -> tuple[DictConfig, DictConfig]:
    raise_all(
        ConfigError,
        (
            Problem(
                f"{group}={asked.choices[group]} can't be chosen on top of config={source.path}.",
                why="that file is a whole config already.",
                fix=f"leave it out, or compose anew with +experiment=NAME {group}={asked.choices[group]}.",
            )
            for group in _GLOBAL_GROUPS
            if group in asked.choices
        ),
    )
    _, hydra = composer.root(asked.hydra)
    tree = OmegaConf.create(dict(source.values))
    for group, option in asked.choices.items():
        package = group.partition("@")[2] or group.replace("/", ".")
        node = None if option is None else OmegaConf.select(composer.option(group, option), package)
        OmegaConf.update(tree, package, node, merge=False, force_add=True)
    return tree, hydra


def _body(groups: Groups, group: str, option: str) -> dict[str, Any]:
    """The option file's own values, without those of the options that it lists in its defaults."""
    values = plain(OmegaConf.load(groups.files[f"{group.partition('@')[0]}/{option}"]))
    return {key: value for key, value in values.items() if key != "defaults"}


def _no_experiment(asked: Overrides, groups: Groups) -> Iterator[Problem]:
    """Says that no experiment is chosen, and which key may have meant to choose one."""
    known = {*groups.options, *Config.model_fields, "config"}
    for override in asked.values:
        key = override.key_or_group.split(".")[0]
        if key not in known:
            yield Problem(f"{override.input_line}: unknown key {key!r}.", fix=did_you_mean(key, known))
    yield Problem("no experiment is chosen.", fix=f"+experiment=NAME, one of: {', '.join(groups.experiments)}.")


def _unknown_choices(choices: Mapping[str, str], groups: Groups) -> Iterator[Problem]:
    for group, option in choices.items():
        known = groups.options.get(group, ())
        if option not in known:
            yield Problem(f"{group}: {option!r} is no {group}.", fix=did_you_mean(option, known))


def _choice_word(choice: tuple[str, str | None]) -> str:
    group, option = choice
    return f"~{group}" if option is None else f"{group}={option}"


def _apply(tree: DictConfig, overrides: Iterable[Override]) -> list[Problem]:
    problems: list[Problem] = []
    for override in overrides:
        key = override.key_or_group
        try:
            if override.type == OverrideType.DEL:
                _delete(tree, key)
            else:
                OmegaConf.update(tree, key, override.value(), merge=True, force_add=True)
        except ConfigError as error:
            problems += error.problems
        except OmegaConfBaseException as error:
            problems.append(
                Problem(f"{override.input_line}: can't be set ({str(error).splitlines()[0]}).", fix="check the path.")
            )
    return problems


def _delete(tree: DictConfig, key: str) -> None:
    parent, _, leaf = key.rpartition(".")
    node: Any = OmegaConf.select(tree, parent) if parent else tree
    if not isinstance(node, DictConfig) or leaf not in node:
        known = [str(name) for name in node] if isinstance(node, DictConfig) else []
        raise ConfigError(f"~{key}: there is no such key to leave out.", fix=did_you_mean(leaf, known))
    del node[leaf]
