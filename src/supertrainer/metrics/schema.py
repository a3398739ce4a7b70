"""The config of each metric. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from supertrainer.config.strict import TargetModel
from supertrainer.config.tasks import Task, task_of
from supertrainer.core.errors import Problem

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
MultiLabelScalar = Literal[
    "loss",
    "subset_accuracy",
    "hamming_loss",
    "micro_precision",
    "micro_recall",
    "micro_f1",
    "macro_precision",
    "macro_recall",
    "macro_f1",
]
RegressionScalar = Literal["mse", "rmse", "mae", "r2", "pearson", "spearman"]
SPAN_SCALARS = frozenset({"precision", "recall", "f1", "macro_f1"})
TokenScalar = Literal["loss", "tag_accuracy", "tag_macro_f1", "precision", "recall", "f1", "macro_f1"]
LanguageModelScalar = Literal["loss", "perplexity", "accuracy"]

METRIC_OPTIONS: dict[Task, str] = {
    "sequence_classification": "classification",
    "multi_label": "multi_label",
    "regression": "regression",
    "token_classification": "tokens",
    "masked_lm": "masked_lm",
    "causal_lm": "causal_lm",
    "image_text_to_text": "causal_lm",
}
"""The option of the group `metric` for each head."""

LOWER_IS_BETTER = frozenset({"loss", "hamming_loss", "mse", "rmse", "mae", "perplexity"})
_MAIN = "The scalar that ranks checkpoints and stands first in a report."


class MetricConfig(TargetModel):
    """What every metric has: which of its scalars ranks two checkpoints, and which end is the good one."""

    task: ClassVar[Task | None] = None
    """The head whose outputs it takes; None for a user's own, which may take any."""

    main: str = Field(description=_MAIN)
    greater_is_better: bool = Field(default=True, description="Whether a greater value of `main` is the better one.")

    def rules(self, config: Any) -> Iterable[Problem]:
        task = task_of(config)
        if self.task is None or METRIC_OPTIONS[self.task] == METRIC_OPTIONS[task]:
            return
        if config.operation in ("train", "check"):
            yield Problem(
                f"metric={METRIC_OPTIONS[self.task]} with model.task={task}.",
                why="it scores another head's outputs.",
                fix=f"metric={METRIC_OPTIONS[task]}.",
            )

    @model_validator(mode="after")
    def _direction_fits_main(self) -> MetricConfig:
        if self.task is not None and self.greater_is_better == (self.main in LOWER_IS_BETTER):
            given, right = str(self.greater_is_better).lower(), str(not self.greater_is_better).lower()
            raise ValueError(
                f"main={self.main} with greater_is_better={given} would keep the worst checkpoint. "
                f"Fix: greater_is_better={right}."
            )
        return self


class ClassificationMetricConfig(MetricConfig):
    """One label a row: loss, accuracy, and macro and weighted precision, recall and F1 over the fixed label set."""

    task = "sequence_classification"
    main: ClassificationScalar = Field(default="macro_f1", description=_MAIN)


class MultiLabelMetricConfig(MetricConfig):
    """Any number of labels a row: loss, subset accuracy, micro and macro precision, recall and F1."""

    task = "multi_label"
    main: MultiLabelScalar = Field(default="micro_f1", description=_MAIN)
    threshold: float = Field(
        default=0.5, gt=0, lt=1, description="A label applies from this probability on; kept with the trained model."
    )


class RegressionMetricConfig(MetricConfig):
    """A number a row: mean squared and absolute error, R², Pearson's and Spearman's correlation."""

    task = "regression"
    main: RegressionScalar = Field(default="mse", description=_MAIN)
    greater_is_better: bool = Field(default=False, description="Whether a greater value of `main` is the better one.")


class TokenMetricConfig(MetricConfig):
    """A tag a word: precision, recall and F1 of spans, read strictly from IOB2; accuracy and macro F1 of tags."""

    task = "token_classification"
    main: TokenScalar = Field(default="f1", description=_MAIN)


class MaskedLmMetricConfig(MetricConfig):
    """Masked tokens: loss, perplexity, accuracy."""

    task = "masked_lm"
    main: LanguageModelScalar = Field(default="loss", description=_MAIN)
    greater_is_better: bool = Field(default=False, description="Whether a greater value of `main` is the better one.")


class CausalLmMetricConfig(MetricConfig):
    """The next tokens of texts and conversations: loss, perplexity, accuracy."""

    task = "causal_lm"
    main: LanguageModelScalar = Field(default="loss", description=_MAIN)
    greater_is_better: bool = Field(default=False, description="Whether a greater value of `main` is the better one.")
