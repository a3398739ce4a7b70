"""Losses as sums over labelled rows or tokens, so that a step is one mean however it was split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.distributed import all_reduce_sum
from supertrainer.core.errors import SupertrainerError
from supertrainer.data.collation import IGNORED

SummedLoss = Callable[[Any, Tensor], Tensor]
"""Model outputs and labels -> the sum of the loss over everything that has a label, a scalar."""


def summed_cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """The sum of cross-entropy over labelled entries.

    Args:
        logits: (…, C).
        labels: (…) integers; -100 is no label.
        label_smoothing: share of the target that is spread over all classes.

    Returns:
        A scalar of the logits' dtype, float32 at least; zero with a gradient of zeros where nothing is labelled.
    """
    return F.cross_entropy(
        logits.flatten(0, -2).float(),
        labels.flatten(),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


class StepLoss:
    """The `compute_loss_func` of a trainer, and the record of what every step's loss was.

    The Trainer multiplies what this returns by the number of processes and DDP divides by it again, so the gradient is
    that of the sum over all processes divided by the labels of the whole step.
    """

    def __init__(self, summed: SummedLoss) -> None:
        """
        Args:
            summed: the loss of a micro-batch as a sum.
        """
        self._summed = summed
        self._running: list[Tensor] = []  # of this step: the sum of every micro-batch
        self._labels: Tensor | float = 0  # of this step, over all processes
        self._steps: list[tuple[int, Tensor, Tensor | float]] = []  # since the last drain: step, sum here, labels

    def __call__(self, outputs: Any, labels: Tensor, *, num_items_in_batch: Tensor | float) -> Tensor:
        """The micro-batch's share of the step's mean."""
        total = self._summed(outputs, labels)
        self._running.append(total.detach())
        self._labels = num_items_in_batch
        return total / num_items_in_batch

    def end_step(self, step: int) -> None:
        """Closes the optimizer step of this number.

        Raises:
            SupertrainerError: on a CPU, where looking costs nothing, a loss that isn't finite.
        """
        total = torch.stack(self._running).sum() if len(self._running) > 1 else self._running[0]
        self._running = []
        self._steps.append((step, total, self._labels))
        if total.device.type == "cpu":
            _require_finite([(step, float(total))])

    def drain(self) -> float:
        """The mean over all labels of the steps since the last call; every process calls it.

        Raises:
            SupertrainerError: a step's loss wasn't finite.
        """
        steps, self._steps = self._steps, []
        sums = all_reduce_sum(torch.stack([total.double() for _, total, _ in steps])).tolist()
        _require_finite(zip((step for step, _, _ in steps), sums, strict=True))
        return math.fsum(sums) / sum(float(labels) for _, _, labels in steps)


def _require_finite(steps: Iterable[tuple[int, float]]) -> None:
    for step, total in steps:
        if not math.isfinite(total):
            raise SupertrainerError(
                f"the loss of step {step} is {total}.",
                why="every weight would be NaN from the next step on, so nothing later is worth computing.",
                fix="lower trainer.training_kwargs.learning_rate or max_grad_norm, give more warmup_steps, or use fp32 "
                "(bf16 in place of fp16); the checkpoints before this step are intact.",
            )
