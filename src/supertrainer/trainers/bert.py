"""Fine-tuning of encoders with a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from supertrainer.data.collation import EncodedRows
from supertrainer.trainers.base import TaskTrainer
from supertrainer.trainers.losses import summed_cross_entropy


class BertTrainer(TaskTrainer):
    """Sequence classification: one label a row."""

    def summed_loss(self, outputs: Any, labels: Tensor) -> Tensor:
        smoothing = float(self.config.training_kwargs.get("label_smoothing_factor", 0.0))
        return summed_cross_entropy(outputs.logits, labels, label_smoothing=smoothing)

    def max_length(self) -> int | None:
        return self.dataset.config.max_length

    def update_metric(self, logits: Tensor, rows: EncodedRows, numbers: Sequence[int]) -> None:
        self.metric.update(logits, torch.tensor([rows[number]["labels"] for number in numbers]))
