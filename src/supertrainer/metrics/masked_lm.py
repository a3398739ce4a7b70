"""Tokens that were masked: loss, perplexity, accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from supertrainer.metrics.told_tokens import ToldTokensMetric


class MaskedLmMetric(ToldTokensMetric[Sequence[Tensor]]):
    """Takes the logits of the masked tokens, row after row, and of each row the tokens that were there."""

    def update(self, logits: Tensor, labels: Sequence[Tensor]) -> None:
        """See `ToldTokensMetric.add`."""
        self.add(logits, torch.cat(list(labels)))
