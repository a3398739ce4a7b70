"""What a run and a benchmark found, as written to report.json and benchmark.json and read back. No torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from supertrainer.config.strict import StrictModel
from supertrainer.core.files import NON_FINITE
from supertrainer.metrics.scores import ClassScore


def _number_again(value: object) -> object:
    return NON_FINITE.get(value, value) if isinstance(value, str) else value


Number = Annotated[float, BeforeValidator(_number_again)]
"""A float that may be NaN or infinite, which strict JSON holds as "NaN", "Infinity" and "-Infinity"."""


class ModelFacts(StrictModel):
    """Which model."""

    source: str = Field(description="Hub id, directory, package:// path, or what it was built from.")
    parameters: int = Field(description="All parameters.")
    trainable_parameters: int = Field(description="Those that training moves.")
    method: str = Field(default="full", description="How it was fine-tuned: full, lora, qlora, …")


class DataFacts(StrictModel):
    """Which rows."""

    source: str
    rows: dict[str, int] = Field(description="Rows of each split.")
    labels: tuple[str, ...] = Field(default=(), description="The classes in the order of their ids.")


class Timing(StrictModel):
    """How long it took and how fast it went."""

    seconds: Number
    rows_per_second: Number | None = None
    tokens_per_second: Number | None = None
    peak_memory_gib: Number | None = None


class Baseline(StrictModel):
    """A simple predictor's scores on the rows that the model was scored on."""

    name: str
    method: str = Field(description="What it is and what it was fitted with, in words.")
    metrics: dict[str, Number]
    fitted_rows: int
    seconds: float = Field(description="To fit and score.")


class TypeScore(StrictModel):
    """The scores of the rows of one type, such as one kind of questions."""

    name: str
    rows: int
    metrics: dict[str, Number]
    baselines: dict[str, Number] = Field(default={}, description="The main scalar of each baseline on these rows.")


class Sample(StrictModel):
    """One row and what was predicted for it."""

    row: int = Field(description="Its number in the split, from 0.")
    text: str
    true: str | None = None
    predicted: str
    before: str | None = Field(default=None, description="What was predicted before training.")
    probability: Number | None = Field(default=None, description="That the model gave to its prediction.")
    error: Number | None = Field(default=None, description="Distance of a predicted number from the true one.")

    @field_validator("text", "true", "before", "predicted", mode="before")
    @classmethod
    def _can_be_read_back(cls, value: Any) -> Any:
        """Half of a surrogate pair, which no reader of JSON takes, as U+FFFD."""
        if not isinstance(value, str) or value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Scores(StrictModel):
    """What a report and a benchmark share: scores of one split, in full."""

    model: ModelFacts
    data: DataFacts
    main_metric: str = Field(description="The scalar that stands first.")
    definitions: dict[str, str] = Field(default={}, description="What each scalar means.")
    baselines: tuple[Baseline, ...] = ()
    per_class: tuple[ClassScore, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = Field(
        default=(), description="Rows by true class, then by predicted class."
    )
    per_type: tuple[TypeScore, ...] = ()
    samples: tuple[Sample, ...] = ()
    timing: Timing

    @model_validator(mode="after")
    def _confusion_fits_labels(self) -> Scores:
        size = len(self.data.labels)
        if self.confusion and (len(self.confusion), *{len(row) for row in self.confusion}) != (size, size):
            raise ValueError(f"a confusion matrix over {size} labels has {size} rows and {size} columns.")
        return self


class BenchmarkResult(Scores):
    """The scores of one model on one split: benchmark.json."""

    format: Literal[1] = 1
    split: str
    rows: int = Field(description="Rows that were scored.")
    metrics: dict[str, Number]


class Report(Scores):
    """Everything that is told of a run: report.json."""

    format: Literal[1] = 1
    name: str
    experiment: str | None
    mode: str
    operation: str
    status: str = Field(description="finished, interrupted, failed, …")
    directory: str = Field(description="The run directory, as a command would name it.")
    metrics: dict[str, dict[str, Number]] = Field(description="Split, then scalar.")
    scored_split: str | None = Field(
        default=None,
        description="The split of the baselines, the per-class table, the confusion matrix and the samples.",
    )
    steps: int = Field(default=0, description="Optimizer steps done.")
    checkpoint_steps: tuple[int, ...] = ()
    best_step: int | None = None
    attempts: tuple[dict[str, JsonValue], ...] = Field(default=(), description="The rows of attempts.jsonl.")
    commands: dict[str, str] = Field(default={}, description="What to do next: a purpose, then its command.")
    notes: tuple[str, ...] = Field(
        default=(), description="What a reader should know: truncated texts, skipped checkpoints, …"
    )

    @model_validator(mode="after")
    def _scored_split_has_metrics(self) -> Report:
        if self.scored_split is not None and self.scored_split not in self.metrics:
            raise ValueError(
                f"scored_split={self.scored_split} has no metrics; there are those of {sorted(self.metrics)}."
            )
        return self
