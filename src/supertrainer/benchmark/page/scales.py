"""Axes and curves before they are drawn: round ticks, their texts, and fewer points of the same look."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

Point = tuple[float, float]


class Axis(NamedTuple):
    """A range of values with the round numbers that are marked in it."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one."""
        return (value - self.low) / (self.high - self.low)


def axis(values: Sequence[float], *, from_zero: bool = False, whole: bool = False, count: int = 5) -> Axis:
    """An axis that holds all values.

    Args:
        values: finite numbers, one at least.
        from_zero: whether zero belongs to it.
        whole: for whole numbers: it ends where they do, and no tick is a fraction.
        count: about how many ticks.
    """
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        spread = abs(low) / 2 or 1.0
        low, high = (low if from_zero and low == 0 else low - spread), high + spread
    step = _round_step((high - low) / count)
    if whole:
        step = max(step, 1.0)
    else:
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    first = math.ceil(low / step - 1e-9)
    marks = range(first, first + math.floor((high - first * step) / step + 1e-9) + 1)
    return Axis(low, high, tuple(round(mark * step, 12 - math.floor(math.log10(step))) for mark in marks))


def tick_text(value: float) -> str:
    """A round number in few characters: 0.05, 1,500, 20k, 3M, 2e-5."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= 1e4 and size >= unit:
            return f"{value / unit:g}{letter}"
    if size and size < 1e-3:
        return f"{value:.3g}".replace("e-0", "e-")
    return f"{value:,.6g}" if size < 1e4 else f"{value:.3g}"


def value_text(value: float) -> str:
    """A measured number with four digits that count."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}".replace("e-0", "e-")


def thinned(points: Sequence[Point], *, most: int, keep: Sequence[float] = ()) -> list[Point]:
    """At most about `most` of the points: of each stretch its lowest and highest, so that no spike is lost.

    The first and the last point stay, and so does each whose x is in `keep`.
    """
    if len(points) <= most:
        return list(points)
    kept = {0, len(points) - 1}
    stretches = max(most // 2, 1)
    edges = [place * len(points) // stretches for place in range(stretches + 1)]
    for start, end in itertools.pairwise(edges):
        stretch = range(start, end)
        kept.add(min(stretch, key=lambda place: points[place][1]))
        kept.add(max(stretch, key=lambda place: points[place][1]))
    wanted = set(keep)
    kept.update(place for place, (x, _) in enumerate(points) if x in wanted)
    return [points[place] for place in sorted(kept)]


def spread(points: Sequence[Point], *, most: int) -> list[Point]:
    """At most `most` of the points, evenly chosen, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def _round_step(rough: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough * (1 - 1e-9))
