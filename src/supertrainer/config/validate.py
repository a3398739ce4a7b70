"""From a composed tree to one frozen config, or to everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError

from supertrainer.config.compose import Composed
from supertrainer.config.hydra_compose import plain
from supertrainer.config.passthrough import Passthrough
from supertrainer.config.rules import rule_problems
from supertrainer.config.schema_problems import kind_of, schema_problems
from supertrainer.config.secrets import secret_problems
from supertrainer.config.spine import COMPONENTS, Config
from supertrainer.config.strict import StrictModel
from supertrainer.config.targets import schema_class
from supertrainer.core.errors import ConfigError, MissingDependencyError, Problem

M = TypeVar("M", bound=StrictModel)


def validate(composed: Composed, *, environment: Mapping[str, str]) -> Config:
    """Validates a composed tree.

    Raises:
        ConfigError: every problem of it, with dotted path, value, what was expected and the nearest name.
    """
    problems = [*composed.problems, *secret_problems(plain(composed.tree), environment=environment)]
    tree, unresolved = resolve(composed.tree)
    problems += unresolved
    reported = [_key_of(problem) for problem in problems]
    config, found = _validate_tree(tree)
    problems += [problem for problem in found if not _follows(problem, reported)]
    if config is not None and not problems:
        problems += rule_problems(config)
    if problems or config is None:
        raise ConfigError(list(dict.fromkeys(_with_origin(problem, composed.origins) for problem in problems)))
    return config


def _follows(problem: Problem, reported: Sequence[str]) -> bool:
    """Whether a problem only follows from one that is reported: the same key, or a node around it."""
    key = _key_of(problem)
    return any(other == key or other.startswith(f"{key}.") for other in reported)


def _key_of(problem: Problem) -> str:
    return problem.what.partition("=")[0].partition(":")[0]


def resolve(tree: DictConfig) -> tuple[dict[str, Any], list[Problem]]:
    """The tree as plain data with interpolations resolved, and a problem for each that can't be or is missing."""
    problems: list[Problem] = []

    def walk(node: Any, path: str) -> Any:
        if isinstance(node, DictConfig):
            return {str(key): item(node, key, f"{path}.{key!s}" if path else str(key)) for key in node}
        if isinstance(node, ListConfig):
            return [item(node, index, f"{path}[{index}]") for index in range(len(node))]
        return node

    def item(node: DictConfig | ListConfig, key: Any, path: str) -> Any:
        if OmegaConf.is_missing(node, key):
            problems.append(Problem(f"{path}: is required.", fix=f"{path}=VALUE."))
            return None
        try:
            return walk(node[key], path)
        except OmegaConfBaseException as error:
            text: Any = OmegaConf.to_container(node)[key]  # type: ignore[index]
            problems.append(
                Problem(f"{path}={text}: can't be resolved ({str(error).splitlines()[0]}).", fix="write the value.")
            )
            return None

    return walk(tree, ""), problems


def _validate_tree(tree: Mapping[str, Any]) -> tuple[Config | None, list[Problem]]:
    top = {key: value for key, value in tree.items() if key not in COMPONENTS}
    config, problems = _model(Config, top, path="")
    allowed = [str(prefix) for prefix in top.get("allow_targets") or ()]
    nodes: dict[str, StrictModel] = {}
    for name in COMPONENTS:
        if tree.get(name) is not None:
            node, found = _component(name, tree[name], allowed)
            problems += found
            if node is not None:
                nodes[name] = node
    return (None if config is None or problems else config.model_copy(update=nodes)), problems


def _component(name: str, node: Any, allowed: Sequence[str]) -> tuple[StrictModel | None, list[Problem]]:
    if not isinstance(node, Mapping):
        return None, [
            Problem(
                f"{name}={node!r}: is {kind_of(node)}; a node with a _target_ was expected.",
                fix=f"choose one with {name}=OPTION.",
            )
        ]
    target = node.get("_target_")
    if not isinstance(target, str):
        return None, [
            Problem(f"{name}._target_: is required.", why="it names the class.", fix=f"choose one with {name}=OPTION.")
        ]
    try:
        schema = schema_class(target, path=name, allowed=allowed)
    except ConfigError as error:
        return None, list(error.problems)
    return _model(schema, node, path=name)


def _model(model: type[M], tree: Mapping[str, Any], *, path: str) -> tuple[M | None, list[Problem]]:
    """Validates one node with its schema, and its passthrough blocks with the classes that they go to."""
    problems = list(_passthrough_problems(model, tree, path))
    try:
        return model.model_validate_json(json.dumps(tree)), problems
    except ValidationError as error:
        return None, problems + schema_problems(error, model, path=path)


def _passthrough_problems(model: type[BaseModel], tree: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name, field in model.model_fields.items():
        value = tree.get(field.alias or name)
        for marker in field.metadata:
            if isinstance(marker, Passthrough) and isinstance(value, Mapping):
                try:
                    yield from marker.problems(value, path=f"{path}.{name}" if path else name)
                except MissingDependencyError as error:
                    yield from error.problems


def _with_origin(problem: Problem, origins: Mapping[str, str]) -> Problem:
    key = _key_of(problem)
    return Problem(f"{problem.what} (from {origins[key]})", problem.why, problem.fix) if key in origins else problem
