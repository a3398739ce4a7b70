"""Tokens that a language model has to tell: loss, perplexity, accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.errors import DataError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of, require_finite
from supertrainer.metrics.schema import MetricConfig

ReferencesT = TypeVar("ReferencesT")


class ToldTokensMetric(Metric[Tensor, ReferencesT]):
    """Tokens, tokens told right, and the exact sum of cross-entropy."""

    def __init__(self, config: MetricConfig, *, label_names: Sequence[str] = ()) -> None:
        """
        Args:
            config: the main scalar and its direction.
            label_names: there are none.
        """
        super().__init__(config, num_sums=2 + len(DIGIT_EXPONENTS))
        self._batches = 0

    def add(self, logits: Tensor, tokens: Tensor) -> None:
        """Adds some tokens. What is as wide as the vocabulary stays on its device.

        Args:
            logits: (N, V).
            tokens: (N,), those that were there.

        Raises:
            SupertrainerError: a logit is NaN or infinite.
            DataError: shapes that don't fit.
        """
        self._batches += 1
        logits, tokens = logits.detach().float(), tokens.to(logits.device)
        if len(logits) != len(tokens):
            raise DataError(f"batch {self._batches}: {len(logits)} rows of logits for {len(tokens)} tokens.")
        require_finite(logits, batch=self._batches, what="token")
        losses = F.cross_entropy(logits, tokens, reduction="none").cpu().double()
        facts = torch.tensor([int((logits.argmax(dim=1) == tokens).sum()), len(tokens)])
        self._sums += torch.cat([facts, digits_of(losses)])

    def compute(self) -> dict[str, float]:
        """Loss, perplexity and accuracy over the tokens that have a label.

        Raises:
            DataError: no token was counted.
        """
        right, tokens = self._sums[:2].tolist()
        if not tokens:
            raise DataError(
                "no labelled token was evaluated, so there is no metric.",
                fix="evaluate a split with texts that have something to be learnt.",
            )
        loss = mean_of(self._sums[2:].tolist(), count=tokens)
        return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": right / tokens}
