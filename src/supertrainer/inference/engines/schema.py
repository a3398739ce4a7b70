"""The config of each engine. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from supertrainer.config.strict import TargetModel
from supertrainer.models.schema import ModelKwargs


class EngineConfig(TargetModel):
    """What every engine has."""

    batch_size: int = Field(default=32, gt=0, description="Rows that go through the model at once.")


class HfEngineConfig(EngineConfig):
    """transformers and PEFT in this process."""

    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU where there is one.")
    model_kwargs: ModelKwargs = Field(default_factory=ModelKwargs, description="dtype and attention.")
