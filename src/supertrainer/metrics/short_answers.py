"""Short answers against those that people gave: exact match, and the soft accuracy of visual question answering."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

SHORT_ANSWER_DEFINITIONS = {
    "accuracy": "answers equal to the reference, of several to any, in VQA's normal form (without case, punctuation "
    "and articles, numbers as digits) / answers",
    "vqa_accuracy": "mean over answers of the soft accuracy: of all references but one, those equal to the answer / 3, "
    "at most 1, averaged over the one that is left out (Antol et al. 2015); of up to three references, those equal to "
    "it / their number. With one reference it is accuracy",
}
ENOUGH = 3  # people who gave an answer make it right
_ARTICLES = frozenset({"a", "an", "the"})
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DIGITS = {word: str(number) for number, word in enumerate(_WORDS)} | {"none": "0"}
# Apostrophes, periods inside numbers, colons and signs of money and share belong to an answer.
_MARKS = ';/[]"{}()=+\\_-><@`,?!'
_DIGIT_COMMA_DIGIT = re.compile(r"\d,\d")
_END_OF_SENTENCE = re.compile(r"\.(?!\d)")
# English words that are written without their apostrophes too, and mean nothing else then.
_CONTRACTIONS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've he's
how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've o'clock
oughtn't shan't she'd've should've shouldn't shouldn't've somebody'd somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'll y'all'd've you'd you'd've you'll you're you've
"""
_WITH_APOSTROPHES = {word.replace("'", ""): word for word in _CONTRACTIONS.split()}


def plain_answer(text: str) -> str:
    """An answer in the normal form of the VQA evaluation: without case, punctuation and articles, with digits for
    number words and apostrophes in contractions; marks of other scripts go likewise. Of nothing but such, it itself.

    Source: https://visualqa.org/evaluation.html. That evaluation compares answers as they are written where all people
    gave the same one; here every answer is brought to this form.
    """
    whole = " ".join(unicodedata.normalize("NFKC", text).casefold().replace("’", "'").split())
    plain = whole
    in_number = _DIGIT_COMMA_DIGIT.search(whole) is not None
    for mark in {mark for mark in whole if mark in _MARKS or _is_foreign_mark(mark)}:
        # At the edge of a word it goes, between two it parts them.
        at_edge = in_number or f"{mark} " in whole or f" {mark}" in whole
        plain = plain.replace(mark, "" if at_edge else " ")
    words = _END_OF_SENTENCE.sub("", plain).split()
    kept = [word for word in words if word not in _ARTICLES] or words or whole.split()
    return " ".join(_usual(word) for word in kept)


def _usual(word: str) -> str:
    return _DIGITS.get(word) or _WITH_APOSTROPHES.get(word.replace("'", ""), word)


def _is_foreign_mark(character: str) -> bool:
    return not character.isascii() and unicodedata.category(character)[0] == "P"


def short_answer_scores(predicted: str, *, references: Sequence[str]) -> dict[str, float]:
    """`accuracy` and `vqa_accuracy` of one answer.

    Args:
        predicted: the answer.
        references: what people answered, at least one.
    """
    wanted = Counter(map(plain_answer, references))
    agreeing = wanted[plain_answer(predicted)]
    return {
        "accuracy": float(agreeing > 0),
        "vqa_accuracy": soft_accuracy(agreeing, references=len(references)),
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
