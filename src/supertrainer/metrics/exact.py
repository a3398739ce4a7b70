"""Sums of losses without rounding, so that the order and the split of rows can't show."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from supertrainer.core.errors import SupertrainerError

# A loss is summed as base-2³² digits in int64, from 2⁻⁶⁴ up to above fp32's greatest cross-entropy (2¹²⁹): integer
# addition has no rounding. 2³¹ terms fit before a digit overflows.
DIGIT_BITS = 32
DIGIT_EXPONENTS = tuple(range(-64, 160, DIGIT_BITS))


def digits_of(values: Tensor) -> Tensor:
    """The sum of fp64 `values` (N,) ≥ 0 as base-2³² digits, lowest first, (digits,) int64; under 2⁻⁶⁴ is cut off.

    Every step is exact in fp64: scaling by a power of two, floor, and a difference below 2³².
    """
    scales = torch.tensor([2.0**-exponent for exponent in DIGIT_EXPONENTS], dtype=torch.float64)
    floors = (values[:, None] * scales).floor()  # (N, digits)
    floors[:, :-1] -= floors[:, 1:] * 2.0**DIGIT_BITS  # the right side is read before the left is written
    return floors.long().sum(dim=0)


def mean_of(digits: Sequence[int], *, count: int) -> float:
    """The mean of `count` values whose sum has these digits, rounded once."""
    total = sum(
        int(digit) << (exponent - DIGIT_EXPONENTS[0]) for digit, exponent in zip(digits, DIGIT_EXPONENTS, strict=True)
    )
    return float(Fraction(total, count << -DIGIT_EXPONENTS[0]))


def require_finite(logits: Tensor, *, batch: int, what: str) -> None:
    """Refuses logits (N, …) that are no numbers.

    Args:
        batch: number of the batch, for the message.
        what: what a line of logits belongs to: row, word, token.

    Raises:
        SupertrainerError: one is NaN or infinite.
    """
    broken = ~(logits.abs() <= torch.finfo(torch.float32).max).flatten(1).all(dim=1)  # NaN compares false
    if broken.any():
        first = int(broken.nonzero()[0])
        raise SupertrainerError(
            f"batch {batch}: the logits of {int(broken.sum())} of {len(logits)} {what}s are NaN or infinite; "
            f"first {what} {first}.",
            why="what would be predicted by them means nothing, and would silently be scored.",
            fix="lower the learning rate, clip gradients (trainer.training_kwargs.max_grad_norm), or leave fp16.",
        )
