"""The base of every config class: strict types, no unknown keys, frozen."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class StrictModel(BaseModel):
    """A config node. Unknown keys and wrong types are errors; nothing changes after validation.

    Lists are declared as `tuple[...]` and mappings as `dict[...]`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class TargetModel(StrictModel):
    """A config node that selects a class: `_target_` names it, and its schema class is `<Class>Config` in the
    `schema` module of the class's package (`supertrainer.data.bert.BertDataset` -> `supertrainer.data.schema.BertDatasetConfig`).
    """

    target: str = Field(alias="_target_")
