"""Spans of tags, read strictly."""

from __future__ import annotations

import pytest

from supertrainer.core.iob2 import Span, broken, full_scheme, is_iob2, repaired, spans


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O", [("PER", 0, 2)]),
        ("I-PER I-PER O", []),  # an I- begins no span
        ("B-PER I-LOC", [("PER", 0, 1)]),  # nor goes on in another type
        ("B-PER O I-PER", [("PER", 0, 1)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("O B-LOC", [("LOC", 1, 2)]),
        ("", []),
    ],
)
def test_spans_of_tags(tags: str, expected: list[Span]) -> None:
    assert spans(tags.split()) == expected


def test_broken_tags_are_found_and_repaired() -> None:
    tags = ["I-PER", "I-PER", "O", "I-LOC", "B-PER", "I-LOC"]
    assert broken(tags) == [0, 3, 5]
    assert repaired(tags) == ["B-PER", "I-PER", "O", "B-LOC", "B-PER", "B-LOC"]


def test_a_scheme_has_both_marks_of_every_type() -> None:
    assert full_scheme(["O", "B-PER", "I-LOC"]) == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.mark.parametrize(("tags", "expected"), [("O B-X", True), ("O NN", False), ("O B-", False), ("S-X", False)])
def test_what_is_iob2(tags: str, expected: bool) -> None:
    assert is_iob2(tags.split()) is expected
