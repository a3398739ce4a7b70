"""The sums behind a language model's benchmark: labelled tokens told, and answers generated."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from supertrainer.core.errors import DataError
from supertrainer.inference.generation import Answer
from supertrainer.inference.token_losses import TokenLosses
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of
from supertrainer.metrics.generation import GENERATION_DEFINITIONS, GenerationSums
from supertrainer.metrics.schema import MetricConfig

DEFINITIONS = {
    "loss": "mean over labelled tokens of the cross-entropy in nats, each given the true tokens before it",
    "perplexity": "e to the power of the loss",
    "accuracy": "labelled tokens that were the likeliest / labelled tokens",
    **GENERATION_DEFINITIONS,
}


@dataclass(frozen=True)
class LlmOutputs:
    """What a language model gave for a batch of rows.

    Attributes:
        losses: of the labelled tokens, row after row.
        answers: by row number, to the rows that were answered.
    """

    losses: TokenLosses
    answers: dict[int, Answer] = field(default_factory=dict)


class LlmScores(Metric[TokenLosses, None]):
    """Tokens, tokens told right, the exact sum of cross-entropy; beside them the sums over answers."""

    def __init__(self, main: str, *, greater_is_better: bool) -> None:
        """
        Args:
            main: the scalar that stands first.
            greater_is_better: of it.
        """
        config = MetricConfig(target=f"{__name__}.LlmScores", main=main, greater_is_better=greater_is_better)
        super().__init__(config, num_sums=2 + len(DIGIT_EXPONENTS))
        self.answers = GenerationSums()

    def reset(self) -> None:
        super().reset()
        self.answers = GenerationSums()

    def update(self, losses: TokenLosses, references: None = None) -> None:
        """Adds the labelled tokens of a batch."""
        self._sums += torch.cat([_facts(losses), digits_of(losses.losses)])

    def compute(self) -> dict[str, float]:
        """Loss, perplexity and accuracy of the tokens; the means over answers, where there are any.

        Raises:
            DataError: no token was counted.
        """
        right, tokens = self._sums[:2].tolist()
        return of_tokens(right, tokens, digits=self._sums[2:].tolist()) | self.answers.compute()


def of_tokens(right: int, tokens: int, *, digits: list[int]) -> dict[str, float]:
    """Loss, perplexity and accuracy.

    Args:
        right: tokens that were the likeliest.
        tokens: all.
        digits: of the sum of their losses, as `metrics.exact` makes them.

    Raises:
        DataError: there is no token.
    """
    if not tokens:
        raise DataError(
            "no labelled token was scored, so there is no metric.",
            why="every row's answer was cut off, or none has one.",
            fix="a greater dataset.max_length, or a split with answers.",
        )
    loss = mean_of(digits, count=tokens)
    return {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": right / tokens}


def _facts(losses: TokenLosses) -> Tensor:
    return torch.tensor([int(losses.right.sum()), len(losses.right)])
