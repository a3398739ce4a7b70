"""The confusion matrix as a table: counts and shares of the true class in cells that the share colours."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from supertrainer.benchmark.page.markup import Html, join, name, tag, text

LEVELS = 20  # of colour
FEW = 12  # classes whose cells have room for count and share
OTHERS = "all others"


class Confused(NamedTuple):
    """Rows of one class that were taken for another."""

    true: str
    predicted: str
    rows: int
    share: float


def confused(counts: Sequence[Sequence[int]], *, labels: Sequence[str]) -> list[Confused]:
    """Pairs of classes by how many rows of the first were taken for the second, the most first; none without any."""
    pairs = [
        Confused(labels[true], labels[predicted], count, count / sum(row))
        for true, row in enumerate(counts)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    return sorted(pairs, key=lambda pair: -pair.rows)


def most_confused(
    counts: Sequence[Sequence[int]], *, labels: Sequence[str], most: int
) -> tuple[list[list[int]], list[str]]:
    """The matrix over the `most` classes with the most wrong rows, false ones of both kinds; the rest is one class.

    Returns:
        Counts and labels, in the order of the labels; unchanged where there are no more.
    """
    size = len(labels)
    if size <= most:
        return [list(row) for row in counts], list(labels)
    wrong = [sum(counts[place]) + sum(row[place] for row in counts) - 2 * counts[place][place] for place in range(size)]
    kept = sorted(sorted(range(size), key=lambda place: -wrong[place])[:most])
    groups = [[place] for place in kept] + [sorted(set(range(size)) - set(kept))]
    summed = [
        [sum(counts[t][p] for t, p in itertools.product(true, predicted)) for predicted in groups] for true in groups
    ]
    return summed, [*(labels[place] for place in kept), OTHERS]


def matrix(counts: Sequence[Sequence[int]], *, labels: Sequence[str]) -> Html:
    """Rows by true class, columns by predicted class.

    Few classes show count and share in each cell; many show one of them, and a switch for the other.
    """
    many = len(labels) > FEW
    corner = tag("th", {"class": "corner"}, text("true ↓ predicted →"))
    head = [tag("th", {"scope": "col", "title": label}, tag("span", {}, name(label))) for label in labels]
    rows = [
        _row(label, row, place=place, labels=labels)
        for place, (label, row) in enumerate(zip(labels, counts, strict=True))
    ]
    inner = tag("table", {"class": "matrix"}, tag("thead", {}, tag("tr", {}, corner, *head)), tag("tbody", {}, *rows))
    scrolled = tag("div", {"class": "scroll"}, inner)
    return tag(
        "div", {"class": "confusion many" if many else "confusion few"}, *([_switch()] if many else []), scrolled
    )


def _switch() -> Html:
    """What a cell shows; a radio button each, which the style sheet reads."""
    shown: list[Html] = []
    for value, words in (("counts", "rows"), ("shares", "% of the true class")):
        chosen: dict[str, str | float] = {"checked": "checked"} if value == "counts" else {}
        button = {"type": "radio", "name": "cells", "class": value, **chosen}
        shown.append(tag("label", {}, tag("input", button), text(words)))
    return tag("div", {"class": "switch"}, text("Cells show "), *shown)


def _row(label: str, row: Sequence[int], *, place: int, labels: Sequence[str]) -> Html:
    total = sum(row)
    cells: list[Html] = [tag("th", {"scope": "row", "title": label}, name(label))]
    for predicted, count in enumerate(row):
        share = count / total if total else 0.0
        kind = f"{'right' if predicted == place else 'wrong'} s{round(LEVELS * share)}" + ("" if count else " none")
        percent = f"{100 * share:.0f}"
        said = f"{label} → {labels[predicted]}: {count:,} of {total:,} rows, {percent}%"
        shown = join([tag("b", {}, text(f"{count:,}")), tag("i", {}, text(percent))])
        cells.append(tag("td", {"class": kind, "title": said}, shown))
    return tag("tr", {}, *cells)
