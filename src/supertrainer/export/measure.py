"""How far one model's answers are from another's, on the same tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Difference:
    """Between two models' logits on the same rows.

    Attributes:
        mean: of the absolute differences.
        greatest: of them.
        kl: Kullback-Leibler divergence of the second model's probabilities from the first's, in nats per token.
        agreement: share of tokens where both have the same most likely answer.
        tokens: how many were compared; of a classifier, texts.
    """

    mean: float
    greatest: float
    kl: float
    agreement: float
    tokens: int

    def __str__(self) -> str:
        return (
            f"logits {self.mean:.1e} apart on average, {self.greatest:.1e} at most; KL {self.kl:.1e}; "
            f"the same answer at {self.agreement:.1%} of {self.tokens:,} places"
        )


Row = Sequence[int] | Mapping[str, Tensor]
"""Token ids, or all that a model is called with for one row: (1, T) ids, a mask, pixels."""


def logits_of(model: nn.Module, rows: Sequence[Row]) -> list[Tensor]:
    """The logits of every row by itself, in float32 on the CPU: (T, V) each, of a classifier (1, C)."""
    device = next(model.parameters()).device
    found = []
    with torch.no_grad():
        for row in rows:
            if isinstance(row, Mapping):
                inputs = {name: values.to(device) for name, values in row.items()}
            else:
                ids = torch.tensor([list(row)], device=device)
                inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            logits = model(**inputs).logits
            found.append(logits.float().cpu().reshape(-1, logits.shape[-1]))
    return found


def difference(expected: Sequence[Tensor], actual: Sequence[Tensor]) -> Difference:
    """Compares two models' logits.

    Args:
        expected: of the model that was trained.
        actual: of the other, the same rows in the same order.
    """
    total, greatest, kl, same, values, tokens = 0.0, 0.0, 0.0, 0, 0, 0
    for one, other in zip(expected, actual, strict=True):
        apart = (one.double() - other.double()).abs()
        total, greatest = total + float(apart.sum()), max(greatest, float(apart.max()))
        p, q = (logits.double().log_softmax(dim=-1) for logits in (one, other))
        kl += float((p.exp() * (p - q)).sum())
        same += int((one.argmax(dim=-1) == other.argmax(dim=-1)).sum())
        values, tokens = values + one.numel(), tokens + len(one)
    return Difference(total / values, greatest, kl / tokens, same / tokens, tokens)
