"""The base of every metric: a vector of sums over rows.

A sum is the one thing that doesn't care how rows were split, so a metric of ours never averages averages: `update` adds
the rows of a batch to the vector, processes add their vectors, and `compute` turns the total into numbers once. Token
classification sums token and span counts, BLEU n-gram matches and lengths, a user's own metric whatever it counts. A
metric over ranks keeps the numbers themselves, two a row, and sorts them before it computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from supertrainer.core.distributed import all_reduce_sum
from supertrainer.metrics.schema import MetricConfig

Predictions = TypeVar("Predictions")
References = TypeVar("References")


class Metric(ABC, Generic[Predictions, References]):
    """Streaming sums over rows and the scalars that follow from them. Memory doesn't grow with rows.

    A metric implements `update` (adds to `self._sums`) and `compute`.
    """

    def __init__(self, config: MetricConfig, *, num_sums: int, dtype: torch.dtype = torch.int64) -> None:
        """
        Args:
            config: names the main scalar and its direction.
            num_sums: length of the vector of sums.
            dtype: int64 sums are exact in any order; float64 ones only up to rounding.
        """
        self.main = config.main
        self.greater_is_better = config.greater_is_better
        self._sums = torch.zeros(num_sums, dtype=dtype)

    @abstractmethod
    def update(self, predictions: Predictions, references: References, /) -> None:
        """Adds one batch of rows."""

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """The scalars of all rows seen since the last reset, by name; `main` is one of them."""

    def reset(self) -> None:
        """Forgets every row."""
        self._sums.zero_()

    def state(self) -> Tensor:
        """A copy of the sums, (num_sums,) on the CPU: what processes add up."""
        return self._sums.clone()

    def merge(self, state: Tensor) -> None:
        """Adds the rows behind another `state()`, of this metric on other rows."""
        self._sums += state.to(self._sums)

    def gather(self) -> None:
        """Takes up the rows of all processes; every process calls it."""
        total = all_reduce_sum(self.state())
        self.reset()
        self.merge(total)

    def noted(self) -> dict[str, Any]:
        """What a trained model's readers have to know of how it was scored, such as a threshold."""
        return {}

    def is_better(self, value: float, *, than: float) -> bool:
        """Whether `value` of the main scalar beats `than`; equal values don't."""
        return value > than if self.greater_is_better else value < than
