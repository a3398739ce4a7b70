"""Scores of answers, by hand."""

from __future__ import annotations

import pytest

from supertrainer.metrics.generation import (
    GENERATION_DEFINITIONS,
    GenerationSums,
    chrf,
    longest_common,
    rouge_l,
    score_answer,
    shared_f1,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, sat!", ["the", "cat", "sat"]),
        ("don\u2019t  STOP\n1.5", ["don", "t", "stop", "1", "5"]),
        ("\uff21\uff22 Stra\u00dfe", ["ab", "strasse"]),
        ("\u6211\u7231 NLP\u5427", ["\u6211", "\u7231", "nlp", "\u5427"]),
        ("+ !", ["+", "!"]),
        ("", []),
    ],
)
def test_words_are_without_case_and_marks(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("predicted", "reference", "exact"), [("Paris.", " paris", 1.0), ("Paris", "in Paris", 0.0), ("+", "-", 0.0)]
)
def test_an_exact_match_looks_through_case_marks_and_spaces(predicted: str, reference: str, exact: float) -> None:
    assert score_answer(predicted, reference=reference)["exact_match"] == exact


def test_shared_words_count_as_often_as_both_have_them() -> None:
    # shared: a, b -> precision 2/4, recall 2/3, F1 = 2·2/(4+3)
    assert shared_f1(["a", "a", "b", "c"], ["a", "b", "d"]) == pytest.approx(4 / 7)
    assert (shared_f1([], []), shared_f1(["a"], []), shared_f1([], ["a"])) == (1.0, 0.0, 0.0)


def test_rouge_l_is_that_of_the_papers_example() -> None:
    # Lin 2004, section 3.1: "police killed the gunman"; S2 "police kill the gunman" has the subsequence "police the
    # gunman" (3/4), S3 "the gunman kill police" "the gunman" (2/4).
    reference = ["police", "killed", "the", "gunman"]
    assert rouge_l(["police", "kill", "the", "gunman"], reference) == pytest.approx(0.75)
    assert rouge_l(["the", "gunman", "kill", "police"], reference) == pytest.approx(0.5)
    # 2 of 2 words against 4: 2·2/(2+4)
    assert rouge_l(["killed", "gunman"], reference) == pytest.approx(2 / 3)


def test_the_longest_common_subsequence_is_that_of_the_table() -> None:
    def by_table(first: str, second: str) -> int:
        row = [0] * (len(second) + 1)
        for a in first:
            last = row
            row = [0]
            for at, b in enumerate(second):
                row.append(last[at] + 1 if a == b else max(last[at + 1], row[at]))
        return row[-1]

    texts = ["abcbdab", "bdcaba", "a" * 80 + "b", "ba" * 50, "", "xyz"]
    for first in texts:
        for second in texts:
            assert longest_common(first, second) == by_table(first, second), (first, second)


def test_chrf_by_hand() -> None:
    # "ab cd" -> abcd, "abxd": 1-grams 3/4, 2-grams ab: 1/3, 3-grams 0/2, 4-grams 0/1; precision = recall = 13/48
    assert chrf("ab cd", reference="abxd") == pytest.approx((3 / 4 + 1 / 3) / 4)
    # "abc" for "ab": orders 1 and 2; precision (2/3 + 1/2)/2 = 7/12, recall 1; F2 = 5·7/12 / (4·7/12 + 1)
    assert chrf("abc", reference="ab") == pytest.approx(5 * (7 / 12) / (4 * 7 / 12 + 1))
    assert (chrf("x", reference="y"), chrf("", reference=" "), chrf("", reference="y")) == (0.0, 1.0, 0.0)


def test_sums_are_means_over_answers_in_any_order() -> None:
    rows = [("w1 w2", "w1", 3, True), ("w3", "w3", 2, True), ("", "w4 w5 w6", 1, False)] * 7
    forward, backward = GenerationSums(), GenerationSums()
    for predicted, reference, tokens, ended in rows:
        forward.add(predicted, reference=reference, tokens=tokens, ended=ended)
    for predicted, reference, tokens, ended in reversed(rows):
        backward.add(predicted, reference=reference, tokens=tokens, ended=ended)
    scores = forward.compute()
    assert scores == backward.compute()
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["answer_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    assert scores["ended"] == pytest.approx(2 / 3)
    assert scores["answer_tokens"] == 2
    assert scores.keys() == GENERATION_DEFINITIONS.keys()
    assert GenerationSums().compute() == {}
