"""The config of each benchmark. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from supertrainer.config.strict import TargetModel
from supertrainer.core.errors import Problem
from supertrainer.inference.schema import GenerationConfig


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


class LlmBenchmarkConfig(TaskBenchmarkConfig):
    """Answers of a language model on a labelled split: told token by token, and generated."""

    generate_rows: int = Field(
        default=64, ge=0, description="Rows that are answered too, evenly spaced over the split; 0: none."
    )
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    before: bool = Field(
        default=True, description="Whether the model as it was before training is scored too, where it is known."
    )
    baselines: bool = Field(default=True, description="Whether tokens are told by how common they are too.")
    baseline_rows: int = Field(default=20_000, ge=1, description="Train rows whose tokens are counted at most.")

    def rules(self, config: Any) -> Iterable[Problem]:
        if self.generation.num_samples > 1:
            yield Problem(
                f"benchmark.generation.num_samples={self.generation.num_samples}: one answer a row is scored.",
                fix="benchmark.generation.num_samples=1.",
            )


class MllmBenchmarkConfig(TaskBenchmarkConfig):
    """Answers of a vision-language model to the questions of a labelled split."""

    rows: int | None = Field(default=None, ge=1, description="Rows that are answered, evenly spaced; null: all.")
    generation: GenerationConfig = Field(default_factory=GenerationConfig)
    baselines: bool = Field(
        default=True, description="Whether the commonest answer, and that to the same question, are scored too."
    )
    blank: bool = Field(default=True, description="Whether the model is asked about grey pictures too.")
    sheet: int = Field(default=24, ge=0, description="Rows of sheet.png, evenly spaced; 0: no sheet.")

    def rules(self, config: Any) -> Iterable[Problem]:
        if self.generation.num_samples > 1:
            yield Problem(
                f"benchmark.generation.num_samples={self.generation.num_samples}: one answer a row is scored.",
                fix="benchmark.generation.num_samples=1.",
            )
