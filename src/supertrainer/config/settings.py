"""What a job's script takes from a config: a value with its reason, a line, a count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from supertrainer.config.strict import StrictModel

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _bare(value: Any) -> Any:
    """A text or number in place of a setting is its value."""
    if isinstance(value, bool):
        raise ValueError(
            "is true or false, which programs spell in many ways. Fix: the text that is meant, such as '1'."
        )
    return {"value": value} if isinstance(value, str | int | float) else value


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _no_null_byte(value: str) -> str:
    if "\0" in value:
        raise ValueError("holds a null byte, which no shell can carry. Fix: remove it.")
    return value


def _one_line(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty. Fix: null leaves it out.")
    if any(sign in value for sign in "\n\r\0"):
        raise ValueError("holds a line break, which an #SBATCH line can't. Fix: write it in one line.")
    return value


def _given(value: Any) -> Any:
    """Leaves out names set to null: that is how a variable of a preset is taken back."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _variable_names(value: Mapping[str, Setting]) -> Mapping[str, Setting]:
    for name in value:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of an environment variable. Fix: letters, digits and _, no digit first."
            )
    return MappingProxyType(dict(value))


class Setting(StrictModel):
    """A value and its reason. In YAML also a bare text or number.

    Attributes:
        value: the value, to the letter; a line of shell where it stands in a `setup`.
        why: its reason, which the script shows above it.
        expand: the shell fills in `$NAME` and `${NAME}` of the value on the node, and nothing else.
    """

    value: Annotated[str, BeforeValidator(_text), AfterValidator(_no_null_byte)]
    why: Annotated[str, AfterValidator(_no_null_byte)] = ""
    expand: bool = False

    @model_validator(mode="before")
    @classmethod
    def _is_bare(cls, value: Any) -> Any:
        return _bare(value)


Environment = Annotated[
    Mapping[str, Setting],
    BeforeValidator(_given),
    AfterValidator(_variable_names),
    PlainSerializer(lambda settings: {name: setting.model_dump() for name, setting in settings.items()}),
]
"""Environment variables, each with its reason; null takes one of a preset back."""

Line = Annotated[str, AfterValidator(_one_line)]
Text = Annotated[str, AfterValidator(_no_null_byte)]
Count = Annotated[int, Field(ge=1)]
Memory = Annotated[str, Field(pattern=r"^[0-9]+[KMGT]?$", examples=["16G"])]
