"""Next tokens of texts: loss, perplexity, accuracy."""

from __future__ import annotations

from torch import Tensor

from supertrainer.metrics.told_tokens import ToldTokensMetric


class CausalLmMetric(ToldTokensMetric[Tensor]):
    """Takes the logits of the place before each token, and the tokens, (N,)."""

    def update(self, logits: Tensor, tokens: Tensor) -> None:
        """See `ToldTokensMetric.add`."""
        self.add(logits, tokens)
