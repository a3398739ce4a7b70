"""What can be answered without a picture and without a model: the commonest answer, and that to each question."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from supertrainer.benchmark.rows import PictureQuestions
from supertrainer.metrics.generation import words_of
from supertrainer.metrics.short_answers import plain_answer


@dataclass(frozen=True)
class Guesses:
    """Answers of a simple predictor to every question.

    Attributes:
        name: of the baseline.
        method: what it is and what it was fitted with, in words.
        answers: one a question.
        fitted_rows: train rows that it saw.
        seconds: to fit and to answer.
    """

    name: str
    method: str
    answers: Sequence[str]
    fitted_rows: int
    seconds: float


def without_pictures(train: PictureQuestions, *, test: PictureQuestions) -> tuple[Guesses, ...]:
    """Two baselines: always the commonest answer of the train rows; and to a question that the train rows have too,
    word for word, the commonest answer there.
    """
    started = time.perf_counter()
    all_answers: Counter[str] = Counter()
    by_question: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for question, references in zip(train.questions, train.references, strict=True):
        answer = plain_answer(references[0])
        all_answers[answer] += 1
        by_question[_asked(question)][answer] += 1
    commonest = _commonest(all_answers)
    seconds = time.perf_counter() - started
    best = {question: _commonest(counts) for question, counts in by_question.items()}
    known = [_asked(question) in best for question in test.questions]
    looked_up = [best.get(_asked(question), commonest) for question in test.questions]
    return (
        Guesses("majority answer", f"always {commonest!r}", [commonest] * len(test), len(train), seconds),
        Guesses(
            "question only",
            f"the commonest train answer to the same question, which {sum(known):,} of {len(known):,} are; else "
            f"{commonest!r}",
            looked_up,
            len(train),
            time.perf_counter() - started,
        ),
    )


def _asked(question: str) -> str:
    return " ".join(words_of(question))


def _commonest(counts: Counter[str]) -> str:
    """Of answers that are as common, the first by the alphabet."""
    return min(counts, key=lambda answer: (-counts[answer], answer))
