"""Pydantic's errors in the words of this program: the full key, the value, what was expected, and the fix. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.schema_types import Place, find_place
from supertrainer.core.errors import Problem

_WRONG_TYPE = ("_type", "_from_float", "_parsing", "_attributes_type")
_RULES = ("value_error", "assertion_error")  # raised by a schema's own validators, which word them


def schema_problems(error: ValidationError, model: type[BaseModel], *, path: str = "") -> list[Problem]:
    """What is wrong with a node.

    Args:
        error: of its validation.
        model: the node's schema.
        path: of the node in the config.
    """
    found = [(detail, find_place(model, detail["loc"])) for detail in error.errors(include_url=False)]
    problems: dict[str, Problem] = {}
    for detail, place in found:
        # Each branch of a union has an error of its own: the one that got further in says more, equal ones say it once.
        depth = len(place.parts)
        further = any(len(other.parts) > depth and other.parts[:depth] == place.parts for _, other in found)
        if not (further and detail["type"] not in _RULES):
            problem = _problem(detail, model, place, path=path)
            problems.setdefault(problem.what, problem)
    return list(problems.values())


def kind_of(value: Any) -> str:
    """What a value is, in words."""
    names = {
        str: "text",
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        list: "a list",
        dict: "keys and values",
    }
    return "nothing" if value is None else names.get(type(value), type(value).__name__)


def _problem(detail: ErrorDetails, model: type[BaseModel], place: Place, *, path: str) -> Problem:
    kind, value, where = detail["type"], detail.get("input"), _dotted(path, place.parts)
    if kind == "extra_forbidden":
        return _unknown_key(detail, model, place, path=path)
    if kind == "missing":
        return _missing(place, where)
    if kind in _RULES:
        return _rule(detail, where)
    if kind == "literal_error" and len(place.takes) == 1:
        choices = place.choices
        return Problem(
            f"{where}={_shown(value)}: expected one of {', '.join(choices)}.", fix=did_you_mean(str(value), choices)
        )
    wanted = _wanted(place)
    given = f"is {kind_of(value)}; " if kind.endswith(_WRONG_TYPE) else ""
    return Problem(
        f"{where}={_shown(value)}: {given}{wanted} was expected.",
        why=_meaning(place),
        fix=_fix(place, where, value, wanted=wanted),
    )


def _unknown_key(detail: ErrorDetails, model: type[BaseModel], place: Place, *, path: str) -> Problem:
    owner = find_place(model, detail["loc"][:-1])
    known = [field.alias or name for name, field in owner.model.model_fields.items()] if owner.model else []
    around = _dotted(path, owner.parts)
    why = f"{around} has no such key." if around else "there is no such key at the top of a config."
    where = _dotted(path, (*owner.parts, detail["loc"][-1]))
    return Problem(
        f"{where}={_shown(detail.get('input'))}: unknown key.", why=why, fix=did_you_mean(str(detail["loc"][-1]), known)
    )


def _missing(place: Place, where: str) -> Problem:
    last = place.parts[-1] if place.parts else ""
    if isinstance(last, int):
        around = where.rpartition("[")[0]
        return Problem(
            f"{where}: is required.", why=_meaning(place), fix=f"{around}=[…] with {last + 1} items or more."
        )
    return Problem(f"{where}: is required.", why=_meaning(place), fix=f"{where}=VALUE ({_wanted(place)}).")


def _rule(detail: ErrorDetails, where: str) -> Problem:
    value = detail.get("input")
    message = str((detail.get("ctx") or {}).get("error") or detail["msg"])
    what, _, fix = message.partition(" Fix: ")
    at_node = isinstance(value, Mapping)  # a rule over a whole node carries its own values
    return Problem(f"{where}: {what}" if at_node else f"{where}={_shown(value)}: {what.rstrip('.')}.", fix=fix)


def _wanted(place: Place) -> str:
    return " or ".join(place.takes)


def _meaning(place: Place) -> str:
    """What the key is for, in the words of its schema."""
    said = None if place.field is None else place.field.description
    return "" if not said else f"it is this: {said}"


def _fix(place: Place, where: str, value: Any, *, wanted: str) -> str:
    if isinstance(value, str) and (quoted := _unquoted(place, value)) is not None:
        return f"{where}={quoted} without quotes."
    if any(isinstance(part, int) for part in place.parts):  # an item can't be set alone
        around, _, rest = where.partition("[")
        return f"{around}=[…] with {wanted} as [{rest}."
    example = place.example(value)
    return f"give {wanted}." if example is None or example == value else f"{where}={_shown(example)}, say."


def _unquoted(place: Place, value: str) -> int | float | None:
    """The number that a quoted one is, where a number is wanted."""
    for kind in (int, float):
        if any(word.startswith("a whole number" if kind is int else "a number") for word in place.takes):
            try:
                return kind(value)
            except ValueError:
                continue
    return None


def _dotted(path: str, location: Iterable[int | str]) -> str:
    text = path
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text = f"{text}.{part}" if text else part
    return text


def _shown(value: Any, *, most: int = 80) -> str:
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= most else f"{text[:most]}…"
