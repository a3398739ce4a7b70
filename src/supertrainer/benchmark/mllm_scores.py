"""The sums behind a vision-language model's benchmark: answers told right, overall and by type of question."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from supertrainer.core.errors import DataError
from supertrainer.inference.generation import Answer
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of
from supertrainer.metrics.generation import GENERATION_DEFINITIONS, GenerationSums
from supertrainer.metrics.schema import MetricConfig
from supertrainer.metrics.short_answers import SHORT_ANSWER_DEFINITIONS, short_answer_scores

MAIN = "accuracy"
SHORT = ("accuracy", "vqa_accuracy")
_REPLACED = "exact_match"  # by accuracy, which takes several references
_BEST = ("answer_f1", "chrf", "rouge_l")
DEFINITIONS = {
    **SHORT_ANSWER_DEFINITIONS,
    **{name: words for name, words in GENERATION_DEFINITIONS.items() if name != _REPLACED},
    **{name: f"{GENERATION_DEFINITIONS[name]}; of several references the best" for name in _BEST},
}


class ShortSums:
    """Exact sums over short answers, by type of question."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._sums: dict[str, torch.Tensor] = {}

    def add(self, predicted: str, *, references: Sequence[str], kind: str) -> dict[str, float]:
        """Takes an answer; gives its own scores.

        Args:
            kind: the type of its question; empty: none.
        """
        scores = short_answer_scores(predicted, references=references)
        empty = torch.zeros(len(SHORT), len(DIGIT_EXPONENTS), dtype=torch.int64)
        sums = self._sums.setdefault(kind, empty)
        for place, name in enumerate(SHORT):
            sums[place] += digits_of(torch.tensor([scores[name]], dtype=torch.float64))
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return scores

    def compute(self) -> dict[str, float]:
        """The means over all answers.

        Raises:
            DataError: there was none.
        """
        if not self.counts:
            raise DataError("no answer was scored, so there is no metric.", fix="a split with answers.")
        return _means(torch.stack(list(self._sums.values())).sum(dim=0), count=sum(self.counts.values()))

    def by_type(self) -> dict[str, dict[str, float]]:
        """The means of every type, in the order of their names; empty where questions have no types."""
        if not any(self.counts):
            return {}
        return {kind: _means(self._sums[kind], count=self.counts[kind]) for kind in sorted(self.counts)}


class MllmScores(Metric[Answer, tuple[Sequence[str], str]]):
    """Answers to questions with one or several references and, maybe, a type."""

    def __init__(self) -> None:
        super().__init__(MetricConfig(target=f"{__name__}.MllmScores", main=MAIN, greater_is_better=True), num_sums=0)
        self.short = ShortSums()
        self._texts = GenerationSums()

    def reset(self) -> None:
        super().reset()
        self.short = ShortSums()
        self._texts = GenerationSums()

    def update(self, answer: Answer, expected: tuple[Sequence[str], str]) -> None:
        """Adds an answer.

        Args:
            answer: what was generated.
            expected: the references, and the type of the question.
        """
        self.add(answer, references=expected[0], kind=expected[1])

    def add(self, answer: Answer, *, references: Sequence[str], kind: str) -> dict[str, float]:
        """Adds an answer; gives its own scores."""
        text = answer.text.strip()
        found = self._texts.add(
            text, reference=references[0], tokens=len(answer.tokens), ended=answer.ended, others=references[1:]
        )
        kept = {name: value for name, value in found.items() if name != _REPLACED}
        return self.short.add(text, references=references, kind=kind) | kept

    def compute(self) -> dict[str, float]:
        """The means over all answers, as `DEFINITIONS` says.

        Raises:
            DataError: there was none.
        """
        texts = self._texts.compute()
        texts.pop(_REPLACED, None)
        return self.short.compute() | texts


def _means(sums: torch.Tensor, *, count: int) -> dict[str, float]:
    return {name: mean_of(sums[place].tolist(), count=count) for place, name in enumerate(SHORT)}
