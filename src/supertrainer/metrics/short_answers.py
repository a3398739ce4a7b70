"""Short answers against those that people gave: exact match, and the soft accuracy of visual question answering."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supertrainer.metrics.generation import words_of

SHORT_ANSWER_DEFINITIONS = {
    "accuracy": "answers equal to the reference, of several the most frequent, but for case, punctuation, spaces, "
    "articles and numbers written as words / answers",
    "vqa_accuracy": "mean over answers of the soft accuracy: of all references but one, those equal to the answer / 3, "
    "at most 1, averaged over the one that is left out (Antol et al. 2015); of up to three references, those equal to "
    "it / their number. With one reference it is accuracy",
}
_ARTICLES = frozenset({"a", "an", "the"})
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {word: str(number) for number, word in enumerate(_WORDS)} | {"none": "0"}
ENOUGH = 3  # people who gave an answer make it right


def plain_answer(text: str) -> str:
    """An answer without case, punctuation, articles, and with digits for number words; of an article alone, it.

    Source: the normalisation of the VQA evaluation, https://visualqa.org/evaluation.html.
    """
    words = words_of(text)
    kept = [word for word in words if word not in _ARTICLES] or words
    return " ".join(_DIGITS.get(word, word) for word in kept)


def short_answer_scores(predicted: str, *, references: Sequence[str]) -> dict[str, float]:
    """`accuracy` and `vqa_accuracy` of one answer.

    Args:
        predicted: the answer.
        references: what people answered, at least one.
    """
    wanted = Counter(map(plain_answer, references))
    found = plain_answer(predicted)
    return {
        "accuracy": float(found == wanted.most_common(1)[0][0]),
        "vqa_accuracy": soft_accuracy(wanted[found], references=len(references)),
    }


def soft_accuracy(agreeing: int, *, references: int) -> float:
    """How right an answer is that so many of the references agree with.

    Source: Antol et al., VQA: Visual Question Answering (2015), and its evaluation, which leaves each of ten
    references out in turn.
    """
    if references <= ENOUGH:
        return agreeing / references
    others = references - agreeing
    left = agreeing * min((agreeing - 1) / ENOUGH, 1.0) + others * min(agreeing / ENOUGH, 1.0)
    return left / references
