"""The worst rows of every kind of record, on records that can be ranked by hand."""

from __future__ import annotations

from typing import Any

from supertrainer.benchmark.page.worst import NOTHING, read_worst


def told(records: list[dict[str, Any]], *, most: int = 20) -> list[tuple[Any, ...]]:
    """Row and what is told of each of the worst."""
    numbered = [{"row": row, "text": f"text {row}"} | record for row, record in enumerate(records)]
    return [(one.row, *(tuple(fact) for fact in one.told)) for one in read_worst(numbered, most=most).mistakes]


def one_class(true: str | None, predicted: str, probability: float) -> dict[str, Any]:
    return {"true": true, "predicted": predicted, "probabilities": {predicted: probability, "b": 0.01}}


def test_the_surest_wrong_class_is_first_and_no_more_are_kept_than_wanted() -> None:
    records = [one_class("b", "g", 0.6), one_class("g", "g", 0.99), one_class("b", "g", 0.9), one_class("b", "g", 0.9)]
    assert told([*records, one_class(None, "g", 1.0)], most=2) == [
        (2, ("true", "b", 0.01), ("predicted", "g", 0.9)),
        (3, ("true", "b", 0.01), ("predicted", "g", 0.9)),
    ]


def test_of_labels_the_one_farthest_from_the_truth_counts() -> None:
    probabilities = {"a": 0.1, "b": 0.7, "c": 0.6}
    records = [
        {"true": ["a"], "predicted": ["b", "c"], "probabilities": probabilities},
        {"true": ["b", "c"], "predicted": ["b", "c"], "probabilities": probabilities},
        {"true": [], "predicted": ["b", "c"], "probabilities": {"a": 0.0, "b": 0.99, "c": 0.6}},
    ]
    assert told(records) == [
        (2, ("true", "none", None), ("predicted", "b, c", None), ("surely wrong", "b", 0.99)),
        (0, ("true", "a", None), ("predicted", "b, c", None), ("surely missed", "a", 0.1)),
    ]


def test_numbers_by_distance_and_all_of_them_to_draw() -> None:
    records = [{"row": row, "text": "", "true": 1.0, "predicted": value} for row, value in enumerate((1.5, 1.0, -2.0))]
    worst = read_worst(records, most=1)
    assert [one.row for one in worst.mistakes] == [2]
    assert worst.mistakes[0].told[2] == ("off by", "3", None)
    assert worst.pairs == ((0, 1.0, 1.5), (1, 1.0, 1.0), (2, 1.0, -2.0))


def test_spans_missed_and_not_there() -> None:
    def span(kind: str, start: int, text: str) -> dict[str, Any]:
        return {"type": kind, "start": start, "end": start + 1, "text": text}

    words = {"words": ["Ann", "in", "Rome"]}
    records = [
        words | {"true": [span("PER", 0, "Ann")], "predicted": [span("PER", 0, "Ann")]},
        words | {"true": [span("PER", 0, "Ann"), span("LOC", 2, "Rome")], "predicted": [span("PER", 0, "Ann")]},
        words | {"true": [span("PER", 0, "Ann")], "predicted": [span("ORG", 0, "Ann")]},
    ]
    assert told(records) == [
        (2, ("missed", "PER Ann", None), ("not there", "ORG Ann", None)),
        (1, ("missed", "LOC Rome", None), ("right", "PER Ann", None)),
    ]


def test_tags_by_how_many_are_wrong() -> None:
    words = {"words": ["a", "dog"]}
    records = [words | {"true": ["DET", "NOUN"], "predicted": ["DET", "VERB"]}]
    assert told([*records, words | {"true": ["DET", "NOUN"], "predicted": ["DET", "NOUN"]}]) == [
        (0, ("wrong tags", "dog NOUN → VERB", None))
    ]


def test_masked_tokens_and_unknown_records_have_none() -> None:
    assert read_worst([{"row": 0, "text": "a", "true": ["b"], "predicted": ["c"]}, {"row": 1}]) == NOTHING
    assert read_worst([]) == NOTHING


def test_long_texts_and_pairs_are_cut() -> None:
    record = {"row": 0, "text": ["x" * 10_000, ""], **one_class("b", "g", 0.9)}
    pair = read_worst([record]).mistakes[0]
    assert (len(pair.texts[0]), pair.texts[1], pair.characters) == (4_000, "", (10_000, 0))
