"""Tokens that were masked: loss, perplexity, accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.errors import DataError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of, require_finite
from supertrainer.metrics.schema import MaskedLmMetricConfig


class MaskedLmMetric(Metric[Tensor, Sequence[Tensor]]):
    """Tokens, tokens told right, and the exact sum of cross-entropy."""

    def __init__(self, config: MaskedLmMetricConfig, *, label_names: Sequence[str] = ()) -> None:
        """
        Args:
            config: the main scalar and its direction.
            label_names: there are none.
        """
        super().__init__(config, num_sums=2 + len(DIGIT_EXPONENTS))
        self._batches = 0

    def update(self, logits: Tensor, labels: Sequence[Tensor]) -> None:
        """Adds one batch.

        Args:
            logits: (L, V), of the tokens that have to be told, row after row.
            labels: of each row the tokens that were there.

        Raises:
            SupertrainerError: a logit is NaN or infinite.
            DataError: shapes that don't fit.
        """
        self._batches += 1
        logits, true = logits.detach().cpu().float(), torch.cat(list(labels)).cpu()
        if len(logits) != len(true):
            raise DataError(f"batch {self._batches}: {len(logits)} rows of logits for {len(true)} masked tokens.")
        require_finite(logits, batch=self._batches, what="token")
        losses = F.cross_entropy(logits, true, reduction="none").double()
        facts = torch.tensor([int((logits.argmax(dim=1) == true).sum()), len(true)])
        self._sums += torch.cat([facts, digits_of(losses)])

    def compute(self) -> dict[str, float]:
        """Loss, perplexity and accuracy over the masked tokens.

        Raises:
            DataError: no token was counted.
        """
        right, tokens = self._sums[:2].tolist()
        if not tokens:
            raise DataError("no masked token was evaluated, so there is no metric.", fix="evaluate a split with texts.")
        loss = mean_of(self._sums[2:].tolist(), count=tokens)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": right / tokens}
