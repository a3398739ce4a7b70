"""Tags of spans in IOB2: B-TYPE begins a span, I-TYPE goes on in it, O is outside of all. Read strictly. No torch.

An I- that doesn't go on from a B- or I- of its type begins nothing. Source: Tjong Kim Sang and Veenstra 1999; strict
reading as in seqeval's `mode="strict", scheme=IOB2`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

OUTSIDE = "O"
Span = tuple[str, int, int]
"""Type, place of the first tag, place after the last."""


def is_iob2(tags: Iterable[str]) -> bool:
    """Whether every tag is O, B-TYPE or I-TYPE."""
    return all(tag == OUTSIDE or (tag[:2] in ("B-", "I-") and len(tag) > 2) for tag in tags)


def types_of(tags: Iterable[str]) -> list[str]:
    """The types of spans that a set of tags can say, sorted."""
    return sorted({tag[2:] for tag in tags if tag != OUTSIDE})


def full_scheme(tags: Iterable[str]) -> tuple[str, ...]:
    """O, and B- and I- of every type in `tags`: a type whose spans all had one word has its I- too."""
    return (OUTSIDE, *(f"{mark}-{name}" for name in types_of(tags) for mark in "BI"))


def spans(tags: Sequence[str]) -> list[Span]:
    """The spans of a text's tags, in their order.

    >>> spans(["B-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-PER"])
    [('PER', 0, 2), ('LOC', 4, 5)]
    """
    found: list[Span] = []
    name, start = "", -1
    for place, tag in enumerate((*tags, OUTSIDE)):
        if start >= 0 and tag != f"I-{name}":
            found.append((name, start, place))
            start = -1
        if tag.startswith("B-"):
            name, start = tag[2:], place
    return found


def broken(tags: Sequence[str]) -> list[int]:
    """The places of I- tags that don't go on from a B- or I- of their type."""
    before = (OUTSIDE, *tags)
    return [place for place, tag in enumerate(tags) if tag.startswith("I-") and before[place][2:] != tag[2:]]


def repaired(tags: Sequence[str]) -> list[str]:
    """The tags with every broken I- as a B-."""
    wrong = set(broken(tags))
    return [f"B-{tag[2:]}" if place in wrong else tag for place, tag in enumerate(tags)]
