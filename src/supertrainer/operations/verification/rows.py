"""What a check came to: a figure, its bound and a verdict; and the table of all of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from supertrainer.benchmark.display import column_widths, pad, wrapped

Verdict = Literal["holds", "BREAKS", "measured", "not applicable"]
WIDTH = 100
_HEADER = ("check", "figure", "bound", "verdict")


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        check: what was compared with what.
        figure: what was measured, as it is shown.
        bound: what it may be at most; empty where nothing is promised.
        verdict: only BREAKS makes the command fail; a figure that is measured without a promise never does.
        why: why it isn't promised or not applicable, or what broke; empty where the figure says it all.
        value: the figure as a number; None where there is none.
    """

    check: str
    figure: str
    bound: str
    verdict: Verdict
    why: str = ""
    value: float | None = None


def within(check: str, value: float, *, bound: float, unpromised: str = "", why: str = "") -> Row:
    """A difference that may be `bound` at most.

    Args:
        unpromised: why this can't be promised here; the figure is then shown without a verdict.
        why: said beside a figure whatever the verdict.
    """
    figure = f"{value:.1e}" if value else "0"
    if unpromised:
        return measured(Row(check, figure, "", "measured", "", value), unpromised)
    holds = math.isfinite(value) and value <= bound  # NaN holds nothing
    return Row(check, figure, f"≤ {bound:.0e}" if bound else "0", "holds" if holds else "BREAKS", why, value)


def measured(row: Row, unpromised: str) -> Row:
    """The row with its figure, and without a verdict on it."""
    return dataclasses.replace(row, bound="", verdict="measured", why=f"not promised: {unpromised}")


def same_bits(check: str, differing: int, total: int) -> Row:
    """Two runs that must have every value in common."""
    verdict: Verdict = "BREAKS" if differing or not total else "holds"
    return Row(check, f"{differing:,} of {total:,} differ", "0", verdict, value=differing)


def none_of(check: str, wrong: int, total: int) -> Row:
    """Things that must not be there, among so many that were looked at; looking at nothing holds nothing."""
    verdict: Verdict = "BREAKS" if wrong or not total else "holds"
    return Row(check, f"{wrong:,} of {total:,}", "0", verdict, value=wrong)


def other_bits(check: str, differing: int, total: int) -> Row:
    """Two runs that must not be the same."""
    return Row(check, f"{differing:,} of {total:,} differ", "≥ 1", "holds" if differing else "BREAKS", value=differing)


def not_applicable(check: str, why: str) -> Row:
    """A check that this config gives nothing to do."""
    return Row(check, "", "", "not applicable", why)


def broken(check: str, why: str) -> Row:
    """A check that couldn't even be measured, since what it needs failed."""
    return Row(check, "", "", "BREAKS", why)


def table(rows: Sequence[Row]) -> list[str]:
    """The table, a line a row and its reason below it."""
    cells = [_HEADER, *((row.check, row.figure, row.bound, row.verdict) for row in rows)]
    widths = column_widths(cells)
    lines = [_line(_HEADER, widths), "-" * (sum(widths) + 2 * len(widths) - 2)]
    for row in rows:
        lines.append(_line((row.check, row.figure, row.bound, row.verdict), widths))
        lines += wrapped(row.why, width=WIDTH, first="    ", rest="    ") if row.why else []
    return lines


def conclusion(rows: Iterable[Row]) -> str:
    """One sentence: how many hold, and which break."""
    counts: dict[Verdict, list[str]] = {}
    for row in rows:
        counts.setdefault(row.verdict, []).append(row.check)
    parts = list(_parts({verdict: len(checks) for verdict, checks in counts.items()}))
    return ", ".join(parts)


def _parts(counts: dict[Verdict, int]) -> Iterator[str]:
    words: dict[Verdict, str] = {
        "holds": "hold",
        "BREAKS": "BREAK",
        "measured": "measured without a promise",
        "not applicable": "not applicable",
    }
    for verdict, word in words.items():
        if verdict in counts:
            yield f"{counts[verdict]} {word}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(pad(cell, width=width) for cell, width in zip(cells, widths, strict=True)).rstrip()
