"""A number a row: errors and correlations, from the numbers themselves: ranks are no sums."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from supertrainer.core.distributed import all_gather_object
from supertrainer.core.errors import DataError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import require_finite
from supertrainer.metrics.schema import RegressionMetricConfig


class RegressionMetric(Metric[Tensor, Tensor]):
    """Keeps two numbers a row, and computes over all of them in an order that doesn't depend on how they came."""

    def __init__(self, config: RegressionMetricConfig, *, label_names: tuple[str, ...] = ()) -> None:
        """
        Args:
            config: the main scalar and its direction.
            label_names: the name of the number, for tables.
        """
        super().__init__(config, num_sums=0)
        self.label_names = tuple(label_names)
        self._pairs: list[Tensor] = []  # (B, 2) each: predicted, true
        self._batches = 0

    def reset(self) -> None:
        self._pairs = []
        self._batches = 0

    def update(self, logits: Tensor, labels: Tensor) -> None:
        """Adds one batch.

        Args:
            logits: (B, 1) or (B,), the predicted numbers.
            labels: (B,), the true ones.

        Raises:
            SupertrainerError: a predicted number is NaN or infinite.
            DataError: shapes that don't fit.
        """
        self._batches += 1
        predicted, true = logits.detach().cpu().double(), labels.detach().cpu().double()
        if predicted.numel() != true.numel():
            raise DataError(
                f"batch {self._batches}: predictions {tuple(predicted.shape)}, numbers {tuple(true.shape)} don't fit.",
                fix="give the model one output.",
            )
        require_finite(predicted.reshape(-1, 1), batch=self._batches, what="row")
        self._pairs.append(torch.stack([predicted.flatten(), true.flatten()], dim=1))

    def state(self) -> Tensor:
        """The numbers of the rows, (rows, 2): predicted, true."""
        return torch.cat([torch.zeros(0, 2, dtype=torch.float64), *self._pairs])

    def merge(self, state: Tensor) -> None:
        self._pairs.append(state)

    def gather(self) -> None:
        states = all_gather_object(self.state().numpy())
        self.reset()
        for state in states:
            self.merge(torch.from_numpy(state))

    def compute(self) -> dict[str, float]:
        """Mean squared and absolute error, R², Pearson's and Spearman's correlation.

        A correlation with numbers that are all the same is 0, R² against true numbers that are all the same too.

        Raises:
            DataError: no row was counted.
        """
        pairs = self.state().numpy()
        if not len(pairs):
            raise DataError("no row was evaluated, so there is no metric.", fix="evaluate a split that has rows.")
        pairs = pairs[np.lexsort(pairs.T)]
        predicted, true = pairs[:, 0], pairs[:, 1]
        squared = _sum((predicted - true) ** 2)
        spread = _sum((true - _sum(true) / len(true)) ** 2)
        return {
            "mse": squared / len(pairs),
            "rmse": math.sqrt(squared / len(pairs)),
            "mae": _sum(np.abs(predicted - true)) / len(pairs),
            "r2": 1 - squared / spread if spread else 0.0,
            "pearson": pearson(predicted, true),
            "spearman": pearson(ranks(predicted), ranks(true)),
        }


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    """Pearson's correlation; 0 where either is all the same."""
    left, right = one - _sum(one) / len(one), other - _sum(other) / len(other)
    norm = math.sqrt(_sum(left**2)) * math.sqrt(_sum(right**2))
    return max(-1.0, min(1.0, _sum(left * right) / norm)) if norm else 0.0


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: np.ndarray = (last - (counts - 1) / 2)[place]
    return means


def _sum(values: np.ndarray) -> float:
    """Rounded once, so that no order shows."""
    return math.fsum(values.tolist())
