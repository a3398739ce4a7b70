"""Generated answers against written ones: how much of the reference an answer holds, and whether it came to an end.

Every score of an answer is in [0, 1] and belongs to it alone; those of a split are their means. No data beside the
texts is needed, and any language is taken: words stand between spaces and marks, and each Chinese, Japanese, Thai, Lao,
Khmer or Burmese character is a word of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import torch

from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of

GENERATION_DEFINITIONS = {
    "exact_match": "answers equal to the reference but for case, punctuation and spaces / answers",
    "answer_f1": "mean over answers of the F1 of the words that answer and reference share",
    "chrf": "mean over answers of chrF2: F-score of character 1- to 6-grams, recall counted twice (Popović 2015)",
    "rouge_l": "mean over answers of ROUGE-L: F1 of the longest common subsequence of words (Lin 2004)",
    "ended": "answers that the model ended itself / answers",
    "answer_tokens": "mean over answers of the tokens generated",
}
CHRF_ORDER = 6
CHRF_BETA = 2
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:(?![{_UNSPACED}])[\w\u0300-\u036f\u200c\u200d])+")
_NUMBERS = ("exact_match", "answer_f1", "chrf", "rouge_l", "ended", "answer_tokens")


class GenerationSums:
    """Exact sums over answers: the same for any order and any split of them."""

    def __init__(self) -> None:
        self.count = 0
        self._sums = torch.zeros(len(_NUMBERS), len(DIGIT_EXPONENTS), dtype=torch.int64)

    def add(
        self, predicted: str, *, reference: str, tokens: int, ended: bool, others: Sequence[str] = ()
    ) -> dict[str, float]:
        """Takes an answer.

        Args:
            predicted: the answer.
            reference: what was written in its place.
            tokens: that were generated.
            ended: whether the model ended it itself.
            others: further references; of each score the best counts.

        Returns:
            Its own scores.
        """
        found = [score_answer(predicted, reference=text) for text in dict.fromkeys((reference, *others))]
        scores = {name: max(one[name] for one in found) for name in found[0]}
        scores |= {"ended": float(ended), "answer_tokens": float(tokens)}
        self.count += 1
        for place, name in enumerate(_NUMBERS):
            self._sums[place] += digits_of(torch.tensor([scores[name]], dtype=torch.float64))
        return scores

    def compute(self) -> dict[str, float]:
        """The means; empty where there was no answer."""
        if not self.count:
            return {}
        return {name: mean_of(self._sums[place].tolist(), count=self.count) for place, name in enumerate(_NUMBERS)}


def score_answer(predicted: str, *, reference: str) -> dict[str, float]:
    """The scores of one answer: exact_match, answer_f1, chrf, rouge_l."""
    found, wanted = words_of(predicted), words_of(reference)
    return {
        "exact_match": float(found == wanted),
        "answer_f1": shared_f1(found, wanted),
        "chrf": chrf(predicted, reference=reference),
        "rouge_l": rouge_l(found, wanted),
    }


def words_of(text: str) -> list[str]:
    """The words of a text without case and punctuation, compatible characters made equal; of a text that is nothing but
    marks, these.
    """
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(plain) or plain.split()


def shared_f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    """F1 of the words that two texts share, each as often as both have it; 1 for two texts without any."""
    if not found or not wanted:
        return float(not found and not wanted)
    return _f_score((Counter(found) & Counter(wanted)).total(), len(found), len(wanted))


def rouge_l(found: Sequence[str], wanted: Sequence[str]) -> float:
    """F1 of the longest common subsequence of words; 1 for two texts without any.

    Source: Lin, ROUGE: A Package for Automatic Evaluation of Summaries (2004), section 3.1, with precision and recall
    weighted alike.
    """
    if not found or not wanted:
        return float(not found and not wanted)
    return _f_score(longest_common(found, wanted), len(found), len(wanted))


def longest_common(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a machine word of places at a time.

    Source: Hyyrö, Bit-parallel LCS-length computation revisited (2004): a zero bit is a place of `first` that counts.
    """
    places: dict[str, int] = {}
    for at, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << at
    whole = (1 << len(first)) - 1
    state = whole
    for word in second:
        match = state & places.get(word, 0)
        state = ((state + match) | (state - match)) & whole
    return len(first) - state.bit_count()


def chrf(predicted: str, *, reference: str) -> float:
    """chrF2 of one answer; 1 for two texts without characters.

    Source: Popović, chrF: character n-gram F-score for automatic MT evaluation (2015): spaces don't count, precision
    and recall are means over the orders that both texts are long enough for.
    """
    found, wanted = "".join(predicted.split()), "".join(reference.split())
    if not found or not wanted:
        return float(not found and not wanted)
    precision = recall = 0.0
    orders = range(1, min(CHRF_ORDER, len(found), len(wanted)) + 1)
    for size in orders:
        ours, theirs = _grams(found, size), _grams(wanted, size)
        shared = (ours & theirs).total()
        precision += shared / ours.total() / len(orders)
        recall += shared / theirs.total() / len(orders)
    if precision + recall == 0:
        return 0.0
    return (1 + CHRF_BETA**2) * precision * recall / (CHRF_BETA**2 * precision + recall)


def _grams(text: str, size: int) -> Counter[str]:
    return Counter(text[start : start + size] for start in range(len(text) - size + 1))


def _f_score(shared: int, found: int, wanted: int) -> float:
    return 2 * shared / (found + wanted)
