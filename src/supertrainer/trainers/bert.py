"""Fine-tuning of encoders with a head."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from supertrainer.config.tasks import WHOLE_TEXT_TASKS, Task
from supertrainer.models.heads import start_at_frequencies
from supertrainer.trainers.base import TaskTrainer
from supertrainer.trainers.class_weights import balanced, by_name
from supertrainer.trainers.losses import Objective, objective_of
from supertrainer.trainers.schema import BertTrainerConfig

log = logging.getLogger(__name__)


class BertTrainer(TaskTrainer):
    """Encoders: one label a text, several, or a number; a tag a word; the words that were masked."""

    config: BertTrainerConfig

    @property
    def task(self) -> Task:
        """What the head is for."""
        return self.model.task

    @functools.cached_property
    def class_weights(self) -> list[float] | None:
        """The weight of each class in the loss, in the order of the ids; None where all weigh the same."""
        given = self.config.class_weights
        if given is None:
            return None
        names = self.dataset.label_names
        if given == "balanced":
            return balanced(self.dataset.load()["train"]["label"], task=self.task, num_labels=len(names))
        return by_name(given, names)

    def build_module(self) -> nn.Module:
        module = super().build_module()
        if self.task == "masked_lm" and start_at_frequencies(module, self.rows("train").token_counts()):
            log.info("the head is new: it starts with how common each token is among the train rows")
        return module

    def objective(self) -> Objective:
        smoothing = float(self.config.training_kwargs.get("label_smoothing_factor", 0.0))
        return objective_of(self.task, label_smoothing=smoothing, class_weights=self.class_weights)

    def max_length(self) -> int | None:
        return self.dataset.config.max_length

    @property
    def train_rows(self) -> int:
        if self.dataset.config.long_texts == "stride":
            rows = self.rows("train")
            return 0 if rows is None else len(rows)
        return super().train_rows

    def update_metric(self, logits: Tensor, rows: Any, numbers: Sequence[int]) -> None:
        self.metric.update(logits, rows.references(numbers))

    def noted(self) -> dict[str, Any]:
        config = self.dataset.config
        windows: dict[str, Any] = {}
        if config.long_texts == "stride" and self.task in WHOLE_TEXT_TASKS:
            windows = {"long_texts": "stride", "overlap": config.overlap, "pooling": config.pooling}
        return windows | self.metric.noted()
