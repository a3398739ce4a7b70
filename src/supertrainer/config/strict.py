"""The base of every config class: strict types, no unknown keys, frozen all the way down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer

from supertrainer.core.errors import ConfigError, Problem
from supertrainer.core.sources import local_path


class StrictModel(BaseModel):
    """A config node. Unknown keys and wrong types are errors; nothing changes after validation.

    Nodes are validated from JSON, so lists are declared as `tuple[...]`, and mappings as `FrozenMapping`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class TargetModel(StrictModel):
    """A config node that selects a class with `_target_`. Its schema class is `<Class>Config` in the `schema` module of
    the class's package: `supertrainer.data.bert.BertDataset` has `supertrainer.data.schema.BertDatasetConfig`.
    """

    target: str = Field(alias="_target_")

    def rules(self, config: Any) -> Iterable[Problem]:
        """What is wrong with this node in the light of the whole config (`supertrainer.config.spine.Config`)."""
        return ()

    def further_identity(self, config: Any) -> Mapping[str, Any]:
        """What else belongs to the run's identity because of this node: dotted keys of the whole config -> values."""
        return {}


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({key: _freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    return value


def thaw(value: Any) -> Any:
    """A plain, mutable copy of a frozen value: dicts and lists, for a third-party constructor or a file."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [thaw(item) for item in value]
    return value


FrozenMapping = Annotated[Mapping[str, Any], AfterValidator(_freeze), PlainSerializer(thaw)]


def _existing(source: str) -> str:
    try:
        local_path(source)
    except ConfigError as error:
        [problem] = error.problems
        raise ValueError(f"{problem.what} Fix: {problem.fix}") from None
    return source


ExistingSource = Annotated[str, AfterValidator(_existing)]
"""A Hub id, or a file, directory or package:// path that is there."""


class NotIdentity:
    """Annotated marker: a field that doesn't change what a run computes (cadence, micro-batch, display)."""
