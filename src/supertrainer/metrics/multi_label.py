"""Any number of labels a row: loss, F1 over labels and rows, rows that are right in every label."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.errors import DataError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of, require_finite
from supertrainer.metrics.schema import MultiLabelMetricConfig
from supertrainer.metrics.scores import ClassScore, class_score


class MultiLabelMetric(Metric[Tensor, Tensor]):
    """For each of C labels rows that have it and are given it, are given it wrongly, and lack it wrongly; rows that are
    right in every label; rows; the exact sum of binary cross-entropy.
    """

    def __init__(self, config: MultiLabelMetricConfig, *, label_names: Sequence[str]) -> None:
        """
        Args:
            config: the main scalar, its direction, and from which probability on a label applies.
            label_names: the C labels in the order of their ids. The label set is fixed: a label that no row has, and
                none is given, still counts in the macro means.
        """
        self.label_names = tuple(label_names)
        self.threshold = config.threshold
        super().__init__(config, num_sums=3 * len(self.label_names) + 2 + len(DIGIT_EXPONENTS))
        self._batches = 0

    def noted(self) -> dict[str, Any]:
        return {"threshold": self.threshold}

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds one batch.

        Args:
            logits: (B, C), any floating dtype, any device.
            labels: (B, C), 1 where a label applies, else 0.

        Raises:
            SupertrainerError: a logit is NaN or infinite.
            DataError: shapes that don't fit the label set.
        """
        self._batches += 1
        logits, labels = logits.detach().cpu().double(), labels.detach().cpu().double()
        shape = (len(labels), len(self.label_names))
        if tuple(logits.shape) != shape or tuple(labels.shape) != shape:
            raise DataError(
                f"batch {self._batches}: logits {tuple(logits.shape)} and labels {tuple(labels.shape)} don't fit "
                f"{shape[1]} labels.",
                fix="give the model as many labels as the dataset has.",
            )
        require_finite(logits, batch=self._batches, what="row")
        true, given = labels > 0.5, applies(logits, threshold=self.threshold)
        counts = [(true & given).sum(dim=0), (~true & given).sum(dim=0), (true & ~given).sum(dim=0)]
        right = (true == given).all(dim=1).sum()
        losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").flatten()
        self._sums += torch.cat([*counts, torch.stack([right, torch.tensor(len(labels))]), digits_of(losses)])

    def compute(self) -> dict[str, float]:
        """Loss, subset accuracy, hamming loss, and micro and macro precision, recall and F1.

        Raises:
            DataError: no row was counted.
        """
        size = len(self.label_names)
        right, rows = self._sums[3 * size : 3 * size + 2].tolist()
        if not rows:
            raise DataError("no row was evaluated, so there is no metric.", fix="evaluate a split that has rows.")
        counts = self._sums[: 3 * size].reshape(3, size)
        together = class_score("all", *counts.sum(dim=1).tolist())
        table = self.table()
        scores = {
            "loss": mean_of(self._sums[3 * size + 2 :].tolist(), count=rows * size),
            "subset_accuracy": right / rows,
            "hamming_loss": int(counts[1:].sum()) / (rows * size),
        }
        for name in ("precision", "recall", "f1"):
            scores[f"micro_{name}"] = vars(together)[name]
            scores[f"macro_{name}"] = math.fsum(vars(score)[name] for score in table) / size
        return scores

    def table(self) -> list[ClassScore]:
        """The scores of each label, in the order of their ids."""
        columns = self._sums[: 3 * len(self.label_names)].reshape(3, -1).T.tolist()
        return [class_score(name, *counts) for name, counts in zip(self.label_names, columns, strict=True)]


def applies(logits: Tensor, *, threshold: float) -> Tensor:
    """Which labels apply: those whose probability is the threshold or more."""
    return logits.double() >= math.log(threshold) - math.log1p(-threshold)
