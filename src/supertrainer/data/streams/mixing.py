"""Which source gives the next document, so that the tokens of each stay close to its weight at every moment."""

from __future__ import annotations

from collections.abc import Sequence


def next_source(weights: Sequence[float], *, given: Sequence[int], offered: Sequence[int]) -> int:
    """The index of the source whose document comes next.

    Documents of one length keep every source within one document of its weight after each of them, for any number of
    sources and any weights; of various lengths, about within the longest.

    Args:
        weights: of the sources that have documents left; they need not sum to one.
        given: tokens that came from each so far.
        offered: tokens of the document that each would give next.

    Source: the rule of R. Tijdeman, "The chairman assignment problem" (1980): of the sources that are due, the one that
    would fall behind first. There all turns are of one length; here a turn is as long as the offered document.
    """
    if len(weights) == 1:
        return 0
    whole, total = sum(weights), sum(given)
    slack = 1 / (2 * len(weights) - 2)
    due: list[tuple[float, float, int]] = []
    behind: list[tuple[float, float, int]] = []
    for index, (weight, tokens, turn) in enumerate(zip(weights, given, offered, strict=True)):
        share = weight / whole
        lack = share * (total + turn) - tokens
        behind.append((tokens - share * total, -share, index))
        if lack >= turn * slack * (1 - 1e-9):
            due.append(((turn * (1 - slack) - lack) / share, -share, index))
    return min(due or behind)[2]
