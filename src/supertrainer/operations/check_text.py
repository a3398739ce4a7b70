"""A check on the screen: facts, tables, rows with what is learnt of them. Colours only where somebody sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TextIO

from supertrainer.benchmark.display import JOINERS, column_widths, columns, one_line, pad
from supertrainer.data.preview import RowView, TextView
from supertrainer.operations.check_result import CheckResult, Table

WIDTH = 100
MOST_TOKENS = 80  # of a row
MOST_CHARACTERS = 1_000
_BOLD, _DIM, _MARK, _END = "\x1b[1m", "\x1b[2m", "\x1b[1;30;42m", "\x1b[0m"
_NOTHING = "·"  # below a token that carries no loss


def print_result(result: CheckResult, *, stream: TextIO) -> None:
    """Prints everything that was found but the problems."""
    colour = shows_colour(stream)
    lines = [*_facts(result.facts)]
    for title, table in result.tables.items():
        lines += ["", _style(title, _BOLD, colour), *_table(table)]
    for split, views in result.views.items():
        title = f"{split}: the first rows as the model sees them"
        lines += [
            "",
            _style(title, _BOLD, colour),
            *(line for view in views for line in view_lines(view, colour=colour)),
        ]
    encoding = stream.encoding or "utf-8"
    text = "".join(f"{line.rstrip()}\n" for line in [*lines, ""])
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def shows_colour(stream: TextIO) -> bool:
    """Whether to colour: on a terminal, unless NO_COLOR is set (no-color.org) or the terminal has none."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def view_lines(view: RowView | TextView, *, colour: bool) -> Iterator[str]:
    """A row, as tokens or as text."""
    yield from text_lines(view, colour=colour) if isinstance(view, TextView) else row_lines(view, colour=colour)


def text_lines(view: TextView, *, colour: bool) -> Iterator[str]:
    """A row as text: what is learnt is marked, with colours or by ⟦ ⟧."""
    yield f"  {view.place}: {view.tokens:,} tokens, {view.learnt:,} are learnt ({view.learnt / view.tokens:.0%})"
    left = MOST_CHARACTERS
    line = ""
    for piece in view.pieces:
        parts = piece.text[:left].split("\n")
        left -= len(piece.text)
        for number, part in enumerate(parts):
            if number:
                yield f"    {line}"
                line = ""
            shown = "".join(char if char.isprintable() or char in JOINERS else " " for char in part)
            if piece.learnt and part:
                line += _style(shown, _MARK, colour) if colour else f"⟦{shown}⟧"
            else:
                line += shown
        if left <= 0:
            break
    yield f"    {line}{' …' if left < 0 else ''}"


def row_lines(view: RowView, *, colour: bool) -> Iterator[str]:
    """A row: its tokens, and below each that is to be learnt its tag or the token that was there.

    With colours a token that carries loss is marked, and special tokens are dim. Without, the line below is the mark.
    """
    learnt = "" if view.targets is None else f", {sum(target is not None for target in view.targets)} carry loss"
    label = f"  label: {view.label}" if view.label else ""
    yield f"  {view.place}: {len(view.tokens)} tokens + {view.padding} padding{learnt}{label}"
    shown = [one_line(token, width=40) or "�" for token in view.tokens[:MOST_TOKENS]]
    targets = None if view.targets is None else list(view.targets[:MOST_TOKENS])
    cells: list[tuple[str, str]] = []
    used = 0
    for index, token in enumerate(shown):
        target = "" if targets is None else targets[index] or _NOTHING
        width = max(columns(token), columns(target))
        if cells and used + width + 1 > WIDTH - 4:
            yield from _cells(cells, aligned=targets is not None)
            cells, used = [], 0
        style = _MARK if targets is not None and targets[index] is not None else _DIM if view.special[index] else ""
        cells.append((_style(token, style, colour) + " " * (width - columns(token)), pad(target, width=width)))
        used += width + 1
    yield from _cells(cells, aligned=targets is not None)
    if len(view.tokens) > MOST_TOKENS:
        yield f"    … and {len(view.tokens) - MOST_TOKENS} more tokens"


def _cells(cells: Sequence[tuple[str, str]], *, aligned: bool) -> Iterator[str]:
    yield f"    {' '.join(token for token, _ in cells)}"
    if aligned:
        yield f"    {' '.join(target for _, target in cells)}"


def _facts(facts: dict[str, str]) -> Iterator[str]:
    width = max((len(name) for name in facts), default=0)
    for name, text in facts.items():
        yield f"{pad(name, width=width)}  {text}"


def _table(table: Table) -> Iterator[str]:
    shown = [[one_line(cell, width=40) for cell in row] for row in table]
    widths = column_widths(shown)
    numbers = [
        all(cell.lstrip("-")[:1].isdigit() or cell == "-" for cell in column[1:]) for column in zip(*shown, strict=True)
    ]
    for row in shown:
        cells = zip(row, widths, numbers, strict=True)
        yield "  " + "  ".join(pad(cell, width=width, right=right) for cell, width, right in cells)


def _style(text: str, style: str, colour: bool) -> str:
    return f"{style}{text}{_END}" if colour and style else text
