"""One label a row: loss, accuracy, precision, recall and F1 from a confusion matrix over the fixed label set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.errors import DataError, SupertrainerError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of
from supertrainer.metrics.schema import ClassificationMetricConfig
from supertrainer.metrics.scores import ClassScore

IGNORED = -100  # the label of a row that carries none, as in torch.nn.functional.cross_entropy


class ClassificationMetric(Metric[Tensor, Tensor]):
    """Confusion counts (C, C), the exact sum of cross-entropy, and rows. The prediction is the first greatest logit."""

    def __init__(self, config: ClassificationMetricConfig, *, label_names: Sequence[str]) -> None:
        """
        Args:
            config: the main scalar and its direction.
            label_names: the C classes in the order of their ids. The label set is fixed: a class that no row has, and
                none is predicted as, still counts in the macro means.
        """
        self.label_names = tuple(label_names)
        self.num_labels = len(self.label_names)
        super().__init__(config, num_sums=len(DIGIT_EXPONENTS) + self.num_labels**2)
        self._batches = 0

    def reset(self) -> None:
        super().reset()
        self._batches = 0

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds one batch.

        Args:
            logits: (B, C), any floating dtype, any device.
            labels: (B,) integers in [0, C), or -100 for a row that doesn't count.

        Raises:
            SupertrainerError: a logit of a counted row is NaN or infinite.
            DataError: shapes or labels that don't fit the label set.
        """
        self._batches += 1
        logits, labels = logits.detach().cpu(), labels.detach().cpu()
        self._check_shapes(logits, labels)
        counted = labels != IGNORED
        logits, labels = logits[counted].double(), labels[counted].long()
        self._check_values(logits, labels, rows=counted.nonzero().flatten())
        cells = labels * self.num_labels + logits.argmax(dim=1)
        digits = digits_of(F.cross_entropy(logits, labels, reduction="none"))
        self._sums += torch.cat([digits, torch.bincount(cells, minlength=self.num_labels**2)])

    def compute(self) -> dict[str, float]:
        """Loss, accuracy, and macro and weighted precision, recall and F1.

        Raises:
            DataError: no row was counted.
        """
        from sklearn.metrics import accuracy_score, precision_recall_fscore_support

        cells = self._cells()
        scores: dict[str, float] = {"loss": self._mean_loss(), "accuracy": float(accuracy_score(**cells))}
        for average in ("macro", "weighted"):
            values = precision_recall_fscore_support(**cells, **self._options, average=average)[:3]
            scores |= {
                f"{average}_{name}": float(v) for name, v in zip(("precision", "recall", "f1"), values, strict=True)
            }
        return scores

    def table(self) -> list[ClassScore]:
        """The scores of each class, in the order of their ids.

        Raises:
            DataError: no row was counted.
        """
        from sklearn.metrics import precision_recall_fscore_support

        columns = precision_recall_fscore_support(**self._cells(), **self._options, average=None)
        return [
            ClassScore(name, float(precision), float(recall), float(f1), int(support))
            for name, precision, recall, f1, support in zip(self.label_names, *columns, strict=True)
        ]

    @property
    def rows(self) -> int:
        """Rows that counted."""
        return int(self.confusion.sum())

    @property
    def confusion(self) -> Tensor:
        """Rows by true class (first axis) and predicted class (second), (C, C) int64."""
        return self._sums[len(DIGIT_EXPONENTS) :].reshape(self.num_labels, self.num_labels).clone()

    @property
    def _options(self) -> dict[str, Any]:
        return {"labels": list(range(self.num_labels)), "zero_division": 0}

    def _cells(self) -> dict[str, np.ndarray]:
        """The occupied cells as scikit-learn's arguments: a cell stands for all its rows by its weight, exactly."""
        confusion = self.confusion.numpy()
        if not confusion.any():
            raise DataError(
                "no labelled row was evaluated, so there is no metric.",
                why=f"every label of {self._batches} batches was {IGNORED}, or there was no batch.",
                fix="evaluate a split that has rows with labels.",
            )
        true, predicted = confusion.nonzero()
        return {"y_true": true, "y_pred": predicted, "sample_weight": confusion[true, predicted]}

    def _mean_loss(self) -> float:
        return mean_of(self._sums[: len(DIGIT_EXPONENTS)].tolist(), count=self.rows)

    def _check_shapes(self, logits: Tensor, labels: Tensor) -> None:
        if logits.ndim != 2 or logits.shape[1] != self.num_labels or labels.shape != logits.shape[:1]:
            raise DataError(
                f"batch {self._batches}: logits {tuple(logits.shape)} and labels {tuple(labels.shape)} "
                f"don't fit {self.num_labels} classes.",
                why=f"the metric takes logits (B, {self.num_labels}) and labels (B,).",
                fix="give the model as many labels as the dataset has classes.",
            )

    def _check_values(self, logits: Tensor, labels: Tensor, *, rows: Tensor) -> None:
        """`rows`: the place in the batch of each counted row, for the message."""
        broken = ~(logits.abs() <= torch.finfo(torch.float32).max).all(dim=1)  # NaN compares false
        if broken.any():
            first = int(broken.nonzero()[0])
            shown = [round(value, 4) for value in logits[first].tolist()]
            raise SupertrainerError(
                f"batch {self._batches}: the logits of {int(broken.sum())} of {len(labels)} rows are NaN or infinite; "
                f"first in row {int(rows[first])} of the batch: {shown}.",
                why="the greatest of such logits means nothing, and would silently score as some class.",
                fix="lower the learning rate, clip gradients (trainer.training_kwargs.max_grad_norm), or leave fp16.",
            )
        strange = (labels < 0) | (labels >= self.num_labels)
        if strange.any():
            first = int(strange.nonzero()[0])
            raise DataError(
                f"batch {self._batches}: row {int(rows[first])} of the batch has label {int(labels[first])}, "
                f"outside 0 … {self.num_labels - 1}.",
                why=f"the label set is {', '.join(self.label_names)}.",
                fix=f"use {IGNORED} for a row without a label.",
            )
