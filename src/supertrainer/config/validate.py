"""From a composed tree to one frozen config, or to everything that is wrong with it."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from supertrainer.config.compose import Composed
from supertrainer.config.hydra_compose import plain
from supertrainer.config.nearest import did_you_mean
from supertrainer.config.passthrough import Passthrough
from supertrainer.config.rules import rule_problems
from supertrainer.config.secrets import secret_problems
from supertrainer.config.spine import COMPONENTS, Config
from supertrainer.config.strict import StrictModel
from supertrainer.config.targets import schema_class
from supertrainer.core.errors import ConfigError, MissingDependencyError, Problem

M = TypeVar("M", bound=StrictModel)

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "keys and values",
    "mapping_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
}


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
                f"{name}={node!r}: is {_kind(node)}; a node with a _target_ was expected.",
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
        return None, problems + [_problem(detail, model, path) for detail in error.errors(include_url=False)]


def _passthrough_problems(model: type[BaseModel], tree: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for name, field in model.model_fields.items():
        value = tree.get(field.alias or name)
        for marker in field.metadata:
            if isinstance(marker, Passthrough) and isinstance(value, Mapping):
                try:
                    yield from marker.problems(value, path=f"{path}.{name}" if path else name)
                except MissingDependencyError as error:
                    yield from error.problems


def _problem(detail: ErrorDetails, model: type[BaseModel], path: str) -> Problem:
    """One pydantic error as a problem: dotted path, value, what was expected, the nearest name."""
    where = _dotted(path, detail["loc"])
    kind, value = detail["type"], detail.get("input")
    if kind == "extra_forbidden":
        owner = _model_at(model, detail["loc"][:-1])
        known = [field.alias or name for name, field in owner.model_fields.items()] if owner else []
        place = _dotted(path, detail["loc"][:-1])
        why = f"{place} has no such key." if place else "there is no such key at the top of a config."
        return Problem(
            f"{where}={_shown(value)}: unknown key.", why=why, fix=did_you_mean(str(detail["loc"][-1]), known)
        )
    if kind == "missing":
        return Problem(f"{where}: is required.", fix=f"{where}=VALUE.")
    context = detail.get("ctx") or {}
    if kind == "literal_error":
        choices = [choice.strip(" '") for choice in str(context["expected"]).replace(" or ", ", ").split(",")]
        return Problem(
            f"{where}={_shown(value)}: expected one of {', '.join(choices)}.", fix=did_you_mean(str(value), choices)
        )
    if kind in _WANTED:
        return Problem(
            f"{where}={_shown(value)}: is {_kind(value)}; {_WANTED[kind]} was expected.",
            fix=_retyped(where, value, kind),
        )
    message = str(context.get("error") or detail["msg"])
    what, _, fix = message.partition(" Fix: ")
    at_node = isinstance(value, Mapping)  # a rule over a whole node carries its own values
    return Problem(f"{where}: {what}" if at_node else f"{where}={_shown(value)}: {what.rstrip('.')}.", fix=fix)


def _retyped(where: str, value: Any, kind: str) -> str:
    if isinstance(value, str) and kind in ("int_type", "float_type"):
        try:
            return f"{where}={float(value) if kind == 'float_type' else int(value)} without quotes."
        except ValueError:
            return f"give {_WANTED[kind]}."
    return f"give {_WANTED[kind]}."


def _model_at(model: type[BaseModel], location: Iterable[int | str]) -> type[BaseModel] | None:
    """The model class at a location inside a model, followed through optional fields and tuples."""
    current: type[BaseModel] | None = model
    for part in location:
        if isinstance(part, int) or current is None:
            continue
        fields = {(field.alias or name): field for name, field in current.model_fields.items()}
        if part in fields:
            current = next(_models_in(fields[part].annotation), None)
    return current


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple, list, dict, typing.Annotated):
        for argument in typing.get_args(annotation):
            yield from _models_in(argument)


def _dotted(path: str, location: Iterable[int | str]) -> str:
    text = path
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.endswith("]") and "(" not in part:  # pydantic adds the branch of a union to the location
            text = f"{text}.{part}" if text else part
    return text


def _shown(value: Any, *, most: int = 80) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= most else f"{text[:most]}…"


def _kind(value: Any) -> str:
    names = {
        str: "text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        list: "a list",
        dict: "keys and values",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _with_origin(problem: Problem, origins: Mapping[str, str]) -> Problem:
    key = _key_of(problem)
    return Problem(f"{problem.what} (from {origins[key]})", problem.why, problem.fix) if key in origins else problem
