"""Losses as sums over labelled rows or tokens, so that a step is one mean however it was split."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.config.tasks import Task
from supertrainer.core.distributed import all_reduce_sum
from supertrainer.core.errors import SupertrainerError
from supertrainer.data.collation import IGNORED

MANY_CLASSES = 1_000


@dataclass(frozen=True)
class Objective:
    """What a step's mean is made of.

    Attributes:
        summed: logits and labels of a micro-batch -> the sum of the loss over everything that has a label.
        weight: labels of a micro-batch -> how much they count in the mean: their number, or the sum of their weights.
    """

    summed: Callable[[Tensor, Tensor], Tensor]
    weight: Callable[[Tensor], Tensor]


def objective_of(
    task: Task, *, label_smoothing: float = 0.0, class_weights: Sequence[float] | None = None
) -> Objective:
    """The objective of an encoder's head.

    Args:
        label_smoothing: share of the target that is spread over all classes.
        class_weights: of each class, in the order of the ids. With them the mean is a weighted one: each label counts
            as much as its class does; of multi_label each label that applies, and one that doesn't counts 1.
    """
    weights = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
    match task:
        case "regression":
            return Objective(summed_squared_error, label_count)
        case "multi_label":
            return Objective(
                functools.partial(summed_binary_cross_entropy, class_weights=weights),
                functools.partial(binary_weight, class_weights=weights),
            )
        case _:
            return Objective(
                functools.partial(summed_cross_entropy, label_smoothing=label_smoothing, class_weights=weights),
                functools.partial(class_weight, class_weights=weights),
            )


def summed_cross_entropy(
    logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0, class_weights: Tensor | None = None
) -> Tensor:
    """The sum of cross-entropy over labelled entries, each times the weight of its class.

    Args:
        logits: (…, C).
        labels: (…) integers; -100 is no label.
        label_smoothing: share of the target that is spread over all classes.
        class_weights: (C,); None: 1 each.

    Returns:
        A scalar of the logits' dtype, float32 at least; zero with a gradient of zeros where nothing is labelled.
    """
    logits, labels = logits.flatten(0, -2), labels.flatten()
    if (
        logits.shape[0] > 1 and logits.shape[-1] > MANY_CLASSES
    ):  # of a vocabulary: few tokens are labelled, rows are long
        labelled = labels != IGNORED
        logits, labels = logits[labelled], labels[labelled]
    logits = logits.to(wide(logits.dtype))
    return F.cross_entropy(
        logits,
        labels,
        weight=None if class_weights is None else class_weights.to(logits),
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def summed_binary_cross_entropy(logits: Tensor, labels: Tensor, *, class_weights: Tensor | None = None) -> Tensor:
    """The sum of binary cross-entropy over rows and classes; where a label applies, times the weight of its class.

    Args:
        logits: (B, C).
        labels: (B, C), 1.0 where a label applies, 0.0 where it doesn't, NaN where there is none.
        class_weights: (C,); None: 1 each.
    """
    given, logits = ~labels.isnan(), logits.to(wide(logits.dtype))
    losses = F.binary_cross_entropy_with_logits(
        logits,
        labels.nan_to_num().to(logits.dtype),
        pos_weight=None if class_weights is None else class_weights.to(logits),
        reduction="none",
    )
    return torch.where(given, losses, 0.0).sum()


def summed_squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of squared errors over rows.

    Args:
        logits: (B, 1).
        labels: (B,), NaN where there is none.
    """
    given, predicted = ~labels.isnan(), logits.flatten().to(wide(logits.dtype))
    return torch.where(given, (predicted - labels.nan_to_num()).square(), 0.0).sum()


def label_count(labels: Tensor) -> Tensor:
    """How many labels there are, a scalar in float64."""
    given = ~labels.isnan() if labels.is_floating_point() else labels != IGNORED
    return given.sum().double()


def class_weight(labels: Tensor, *, class_weights: Tensor | None) -> Tensor:
    """The sum of the weights of the labels' classes, a scalar in float64."""
    if class_weights is None:
        return label_count(labels)
    return class_weights.to(labels.device).double()[labels[labels != IGNORED]].sum()


def binary_weight(labels: Tensor, *, class_weights: Tensor | None) -> Tensor:
    """The sum over rows and classes of 1 where a label doesn't apply and of its weight where it does, in float64."""
    if class_weights is None:
        return label_count(labels)
    weights = 1 + labels.double() * (class_weights.to(labels.device).double() - 1)
    return torch.where(labels.isnan(), 0.0, weights).sum()


def wide(dtype: torch.dtype) -> torch.dtype:
    """The format that a loss is computed in: float32, or a wider one that it is given."""
    return torch.promote_types(dtype, torch.float32)


class StepLoss:
    """The `compute_loss_func` of a trainer, and the record of what every step's loss was.

    The Trainer multiplies what this returns by the number of processes and DDP divides by it again, so the gradient is
    that of the sum over all processes divided by the labels of the whole step.
    """

    def __init__(self, objective: Objective) -> None:
        """
        Args:
            objective: the loss of a micro-batch as a sum, and how much it counts.
        """
        self._objective = objective
        self._running: list[Tensor] = []  # of this step: the sum of every micro-batch
        self._labels: Tensor | float = 0  # of this step, over all processes
        self._steps: list[tuple[int, Tensor, Tensor | float]] = []  # since the last drain: step, sum here, labels

    def __call__(self, outputs: Any, labels: Tensor, *, num_items_in_batch: Tensor | float) -> Tensor:
        """The micro-batch's share of the step's mean."""
        total = self._objective.summed(outputs.logits, labels)
        self._running.append(total.detach())
        self._labels = num_items_in_batch
        return total / num_items_in_batch

    def step_weight(self, batches: Iterable[Mapping[str, Tensor]], *, device: torch.device) -> Tensor:
        """By how much a step's sum is divided: the weight of its labels, over all processes; every process calls it."""
        weight = torch.stack([self._objective.weight(batch["labels"]) for batch in batches]).sum().to(device)
        total = all_reduce_sum(weight)
        return torch.where(total > 0, total, 1.0)  # a step without a label has the loss 0

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
