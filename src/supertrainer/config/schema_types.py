"""What a schema takes at a place: found from a location, told in words, with a value that would do. No torch."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
_UNIONS = (typing.Union, types.UnionType)


@dataclass(frozen=True)
class Limits:
    """The bounds of a number, or of how many characters or items there are; None: no bound.

    Attributes:
        above, least, below, most: exclusive and inclusive bounds of a number.
        shortest, longest: characters of a text, items of a list.
        pattern: of a text, and an `instance` of it.
        finite: neither NaN nor infinite.
    """

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None
    instance: str | None = None
    finite: bool = False

    @property
    def of_whole_numbers(self) -> Limits:
        """The same for whole numbers, with inclusive bounds alone."""
        least = math.floor(self.above) + 1 if self.above is not None else self.least
        most = math.ceil(self.below) - 1 if self.below is not None else self.most
        return dataclasses.replace(self, above=None, below=None, least=least, most=most)

    def __str__(self) -> str:
        """The range in words, to be set behind the name of a type; empty where there is no bound."""
        match (self.above, self.least, self.below, self.most):
            case (None, None, None, None):
                return " that is finite" if self.finite else ""
            case (None, None, None, most):
                return f" of at most {most}"
            case (None, None, below, None):
                return f" below {below}"
            case (None, least, None, None):
                return f" of at least {least}"
            case (above, None, None, None):
                return f" above {above}"
        low = f"above {self.above}" if self.above is not None else f"from {self.least}"
        if self.most is not None:
            return f" {low} to {self.most}"
        return f" {low} and below {self.below}"

    def nearest(self, value: float) -> float | None:
        """The bound that a number is beyond, where that itself is permitted: None where it isn't, as of above 0."""
        low = self.least if self.least is not None else self.above
        beyond_low = low is not None and (value < low or value == self.above)
        return self.least if beyond_low else self.most


@dataclass(frozen=True)
class Place:
    """A place in a schema.

    Attributes:
        parts: the keys and indices that lead there, without the names that pydantic gives to branches of a union.
        annotation: what stands there.
        limits: of that.
        field: the innermost named field around it; None at the top.
        known: whether the schema has the place at all.
    """

    parts: tuple[int | str, ...]
    annotation: Any
    limits: Limits
    field: FieldInfo | None
    known: bool = True

    @property
    def model(self) -> type[BaseModel] | None:
        """The schema class that stands here, where one does."""
        return next((kind for kind, _ in _alternatives(self.annotation) if _is_model(kind)), None)

    @property
    def takes(self) -> tuple[str, ...]:
        """What may stand here, an alternative each, `null` last."""
        found = dict.fromkeys(
            _in_words(kind, _merged(self.limits, metadata)) for kind, metadata in _alternatives(self.annotation)
        )
        return tuple(sorted(found, key=lambda word: word == "null"))

    @property
    def choices(self) -> tuple[str, ...]:
        """The names to choose from, where it is one of some names."""
        kinds = [kind for kind, _ in _alternatives(self.annotation) if typing.get_origin(kind) is typing.Literal]
        return tuple(str(name) for kind in kinds for name in typing.get_args(kind))

    def example(self, value: Any) -> Any:
        """A value that would do, nearest to one that won't: None where none can be told."""
        kinds = [(kind, _merged(self.limits, more)) for kind, more in _alternatives(self.annotation)]
        number = next(((kind, limits) for kind, limits in kinds if kind in (int, float)), None)
        if number is not None and isinstance(value, int | float) and not isinstance(value, bool):
            kind, limits = number
            nearest = (limits.of_whole_numbers if kind is int else limits).nearest(value)
            if nearest is not None and not math.isnan(value):
                return nearest
        default = None if self.field is None else self.field.default
        return None if default is PydanticUndefined or not isinstance(default, int | float | str) else default


def find_place(model: type[BaseModel], location: Sequence[int | str]) -> Place:
    """The place that a pydantic error names. What a schema doesn't have keeps its last part alone: an unknown key."""
    return _follow(Place((), model, Limits(), None), tuple(location))


def _follow(place: Place, rest: tuple[int | str, ...]) -> Place:
    if not rest:
        return place
    part, rest = rest[0], rest[1:]
    for kind, _ in _alternatives(place.annotation):
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if _is_model(kind):
            fields = {field.alias or name: field for name, field in kind.model_fields.items()}
            if part in fields:
                field = fields[part]
                limits = _merged(Limits(), field.metadata)
                return _follow(Place((*place.parts, part), field.annotation, limits, field), rest)
        elif isinstance(part, int) and origin in (tuple, list):
            item = arguments[part] if len(arguments) > part and arguments[-1] is not ... else arguments[0]
            return _follow(Place((*place.parts, part), item, Limits(), place.field), rest)
        elif isinstance(part, str) and _is_mapping(origin) and not _is_branch(part):
            return _follow(Place((*place.parts, part), arguments[1], Limits(), place.field), rest)
    if rest or _is_branch(str(part)) or isinstance(part, int):
        return _follow(place, rest)
    if place.model is None:  # a branch that is named like a type: str, int
        return place
    return Place((*place.parts, part), Any, Limits(), None, known=False)


def _alternatives(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The members of a union, each with what `Annotated` says of it; another annotation is its only member."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from _alternatives(arguments[0], (*metadata, *arguments[1:]))
    elif origin in _UNIONS:
        for member in arguments:
            yield from _alternatives(member, metadata)
    else:
        yield annotation, metadata


def _merged(limits: Limits, metadata: Sequence[Any]) -> Limits:
    found = {name: value for name, value in vars(limits).items() if value is not None and value is not False}
    names = {
        "gt": "above", "ge": "least", "lt": "below", "le": "most", "min_length": "shortest", "max_length": "longest",
        "pattern": "pattern",
    }  # fmt: skip
    for item in metadata:
        if isinstance(item, FieldInfo):
            found |= {"instance": item.examples[0]} if item.examples else {}
            found |= {
                name: value
                for name, value in vars(_merged(Limits(), item.metadata)).items()
                if value is not None and value is not False
            }
            continue
        said = {name: getattr(item, name, None) for name in (*names, "allow_inf_nan")}
        found |= {names[name]: value for name, value in said.items() if name in names and value is not None}
        if said["allow_inf_nan"] is False:
            found["finite"] = True
    return Limits(**found)


def _in_words(kind: Any, limits: Limits) -> str:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, arguments))}" if len(arguments) > 1 else str(arguments[0])
    if origin in (tuple, list):
        fixed = len(arguments) if origin is tuple and arguments and arguments[-1] is not ... else None
        count = fixed if fixed is not None else _count(limits)
        return f"a list of {count}" if count else "a list"
    if _is_model(kind) or _is_mapping(origin) or _is_mapping(kind):
        return "keys and values"
    name = _NAMES.get(kind, "a value")
    if kind is str and limits.pattern is not None:
        return f"{name} of the form {limits.pattern}{f', such as {limits.instance}' if limits.instance else ''}"
    if kind is str and _count(limits):
        return f"{name} of {_count(limits)} characters"
    return f"{name}{limits.of_whole_numbers if kind is int else limits}" if kind in (int, float) else name


def _count(limits: Limits) -> str:
    if limits.shortest is not None and limits.longest is not None:
        return f"{limits.shortest} to {limits.longest}" if limits.shortest != limits.longest else str(limits.longest)
    if limits.longest is not None:
        return f"at most {limits.longest}"
    return f"at least {limits.shortest}" if limits.shortest else ""


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_mapping(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def _is_branch(part: str) -> bool:
    """Whether pydantic made this part of a location, for a branch of a union."""
    return part.endswith("]") or "(" in part
