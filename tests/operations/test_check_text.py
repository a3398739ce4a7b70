"""How a check shows rows: what is learnt stands below its token; colours only on a terminal that wants them."""

from __future__ import annotations

import io

import pytest

from supertrainer.data.preview import RowView
from supertrainer.operations.check_text import row_lines, shows_colour

TAGGED = RowView(
    place="a.csv:2",
    tokens=("[CLS]", "Ada", "Lovel", "##ace", "[SEP]"),
    targets=(None, "B-PER", "I-PER", None, None),
    label="",
    padding=2,
    special=(True, False, False, False, True),
)
LABELLED = RowView("a.csv:3", ("[CLS]", "fine", "[SEP]"), None, "good", 0, (True, False, True))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_tags_stand_below_their_tokens() -> None:
    assert list(row_lines(TAGGED, colour=False)) == [
        "  a.csv:2: 5 tokens + 2 padding, 2 carry loss",
        "    [CLS] Ada   Lovel ##ace [SEP]",
        "    ·     B-PER I-PER ·     ·    ",
    ]


def test_a_row_with_one_label_says_it_once() -> None:
    assert list(row_lines(LABELLED, colour=False)) == [
        "  a.csv:3: 3 tokens + 0 padding  label: good",
        "    [CLS] fine [SEP]",
    ]


def test_colours_mark_what_carries_loss_and_dim_what_was_added() -> None:
    _, tokens, _ = row_lines(TAGGED, colour=True)
    assert "\x1b[1;30;42mAda\x1b[0m" in tokens
    assert "\x1b[2m[CLS]\x1b[0m" in tokens
    assert "\x1b[1;30;42m##ace" not in tokens


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert shows_colour(Terminal())
    assert not shows_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not shows_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not shows_colour(Terminal())


def test_a_token_can_order_the_terminal_nothing() -> None:
    row = RowView("a.csv:4", ("\x1b[31mred", "a\nb"), None, "x", 0, (False, False))
    assert "\x1b" not in "".join(row_lines(row, colour=False))
