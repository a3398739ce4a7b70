"""Texts on one line of known width, whatever is in them."""

from __future__ import annotations

import pytest

from supertrainer.benchmark.display import columns, duration_text, one_line, pad, score_text, wrapped


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("short", 10, "short"),
        ("exactly10!", 10, "exactly10!"),
        ("one too long", 11, "one too lo…"),
        ("cut at a space", 8, "cut at…"),
        (" a\r\nb\t\tc\u2028d ", 20, "a b c d"),
        ("\x1b[31mred\x07", 20, "[31mred"),
        ("abc\u202egnol", 20, "abc gnol"),
        ("好看好看", 8, "好看好看"),
        ("好看好看", 7, "好看好…"),
        ("", 5, ""),
        ("\n\n", 5, ""),
        ("👩\u200d💻", 4, "👩\u200d💻"),
    ],
)
def test_one_line(text: str, width: int, shown: str) -> None:
    assert one_line(text, width=width) == shown
    assert columns(shown) <= width


def test_a_long_text_with_nothing_to_show_at_its_start_says_that_it_goes_on() -> None:
    assert one_line(" " * 10_000 + "end", width=10) == "…"


def test_columns_counts_wide_and_combining_characters() -> None:
    assert columns("ab好e\u0301") == 5


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one two three", ["> one two", "  three"]),
        ("a  b\n\x1bc", ["> a b c"]),
        ("cut-a-long-word now", ["> cut-a-lo", "  ng-word", "  now"]),
        ("x cut-a-long-word", ["> x", "  cut-a-lo", "  ng-word"]),
        ("好看好看好看", ["> 好看好看", "  好看"]),
        ("", [">"]),
    ],
)
def test_wrapped(text: str, lines: list[str]) -> None:
    found = list(wrapped(text, width=10, first="> ", rest="  "))
    assert [line.rstrip() for line in found] == lines
    assert max(map(columns, found)) <= 10


def test_pad() -> None:
    assert pad("好", width=4) == "好  "
    assert pad("x", width=3, right=True) == "  x"


@pytest.mark.parametrize(("seconds", "text"), [(8.26, "8.3 s"), (125.4, "2 min 05 s"), (12_000, "3 h 20 min")])
def test_duration(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_score() -> None:
    assert [score_text(0.81249), score_text(None), score_text(float("nan"))] == ["0.8125", "-", "nan"]
