"""Texts and numbers as a report shows them: one line, one screen wide, nothing that a terminal would obey. No torch."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

JOINERS = "\u200c\u200d"  # parts of emoji and of Persian and Indic words, though they count as unprintable


def one_line(text: str, *, width: int) -> str:
    """The text without line breaks and control characters, cut to `width` columns with an ellipsis at the end."""
    # four characters a column leave room for marks of no width, and a book is not read for its first line
    head = text[: 4 * width + 200]
    line = " ".join("".join(char if char.isprintable() or char in JOINERS else " " for char in head).split())
    if len(head) == len(text) and columns(line) <= width:
        return line
    kept, used = [], 1
    for char in line:
        used += columns(char)
        if used > width:
            break
        kept.append(char)
    return "".join(kept).rstrip() + "…"


def columns(text: str) -> int:
    """How many columns of a terminal a printable text takes: 2 for a Chinese character, 0 for a combining mark."""
    return sum(_columns(char) for char in text)


def wrapped(text: str, *, width: int, first: str = "", rest: str = "") -> Iterator[str]:
    """The text over lines of at most `width` columns, broken at spaces; only a word longer than a line is cut.

    Args:
        text: words; line breaks and control characters count as spaces.
        width: columns of a line with what it begins with.
        first: what the first line begins with.
        rest: what the others begin with.
    """
    line, used, empty = first, columns(first), True
    for word in one_line(text, width=len(text) * 2 + 1).split(" "):
        if not empty and used + 1 + columns(word) > width:
            yield line
            line, used, empty = rest, columns(rest), True
        for char in word if empty else f" {word}":
            if used + columns(char) > width:
                yield line
                line, used = rest, columns(rest)
            line, used = line + char, used + columns(char)
        empty = False
    yield line


def pad(text: str, *, width: int, right: bool = False) -> str:
    """The text filled up with spaces to `width` columns; at its left where it is to stand `right`."""
    space = " " * (width - columns(text))
    return space + text if right else text + space


def score_text(value: float | None) -> str:
    """A score with four digits, `-` for one that wasn't computed."""
    return "-" if value is None else f"{value:.4f}"


def duration_text(seconds: float) -> str:
    """Seconds in the two largest units that matter: 8.3 s, 2 min 05 s, 3 h 20 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def column_widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """The width of each column of a table."""
    return [max(map(columns, column)) for column in zip(*rows, strict=True)]


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
