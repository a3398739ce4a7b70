"""The config of each metric. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from supertrainer.config.strict import TargetModel

ClassificationScalar = Literal[
    "loss",
    "accuracy",
    "macro_precision",
    "macro_recall",
    "macro_f1",
    "weighted_precision",
    "weighted_recall",
    "weighted_f1",
]


class MetricConfig(TargetModel):
    """What every metric has: which of its scalars ranks two checkpoints, and which end is the good one."""

    main: str = Field(description="The scalar that ranks checkpoints and stands first in a report.")
    greater_is_better: bool = Field(default=True, description="Whether a greater value of `main` is the better one.")


class ClassificationMetricConfig(MetricConfig):
    """One label a row: loss, accuracy, and macro and weighted precision, recall and F1 over the fixed label set."""

    main: ClassificationScalar = Field(
        default="macro_f1", description="The scalar that ranks checkpoints and stands first in a report."
    )

    @model_validator(mode="after")
    def _direction_fits_main(self) -> ClassificationMetricConfig:
        if self.greater_is_better == (self.main == "loss"):
            given, right = str(self.greater_is_better).lower(), str(not self.greater_is_better).lower()
            raise ValueError(
                f"main={self.main} with greater_is_better={given} would keep the worst checkpoint. "
                f"Fix: greater_is_better={right}."
            )
        return self
