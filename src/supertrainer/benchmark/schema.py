"""The config of each benchmark. No torch."""

from __future__ import annotations

from pydantic import Field

from supertrainer.config.strict import TargetModel


class TaskBenchmarkConfig(TargetModel):
    """What every benchmark has."""

    split: str = Field(default="test", min_length=1, description="The labelled split to score.")
    samples: int = Field(default=3, ge=0, description="Predictions to show, evenly spaced over the split.")
    predictions: bool = Field(default=True, description="Whether to write predictions.jsonl, a line a row.")


class BertBenchmarkConfig(TaskBenchmarkConfig):
    """Sequence classification on a labelled split."""

    baselines: bool = Field(default=True, description="Whether to score a majority class and a bag of words too.")
    baseline_rows: int = Field(default=20_000, ge=1, description="The bag of words is fitted on at most so many rows.")
    seed: int = Field(default=42, ge=0, description="Chooses those rows.")
