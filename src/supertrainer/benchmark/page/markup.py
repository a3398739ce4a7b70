"""HTML from plain values. What isn't `Html` already is escaped: a text can't become markup by mistake."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NewType

from supertrainer.benchmark.display import JOINERS

Html = NewType("Html", str)
"""Markup that may stand in a page as it is."""

Attributes = Mapping[str, str | float]
NOTHING = Html("")
VOID = frozenset({"br", "input", "line", "rect", "polyline", "meta"})  # without an end tag
BLANK_LINES = 1  # that a text keeps in a row


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        name: of its anchor: lower case letters and dashes.
        title: its heading.
        body: what stands below.
    """

    name: str
    title: str
    body: Html


def tag(name: str, attributes: Attributes, *children: Html) -> Html:
    """An element; attribute values are escaped."""
    shown = "".join(f' {key}="{html.escape(_plain(value))}"' for key, value in attributes.items())
    if name in VOID:
        return Html(f"<{name}{shown}/>")
    return Html(f"<{name}{shown}>{''.join(children)}</{name}>")


def text(value: str) -> Html:
    """A text as it is, but for what a reader must not see obeyed: markup, control characters, turned directions."""
    return Html(html.escape(_visible(value)))


def name(value: str) -> Html:
    """A name of any script inside a line, which its direction doesn't disturb."""
    return tag("bdi", {}, text(" ".join(value.split())) if value.strip() else muted("empty"))


def muted(value: str) -> Html:
    """A text of ours that stands for one that isn't there."""
    return tag("i", {"class": "muted"}, text(value))


def join(parts: Iterable[Html]) -> Html:
    """The parts one after another."""
    return Html("".join(parts))


def paragraph(*parts: Html) -> Html:
    """A line or more of words."""
    return tag("p", {}, *parts)


def facts(rows: Mapping[str, str | Html]) -> Html:
    """A list of names and what they stand for; the values are texts, long words are broken."""
    return tag(
        "dl",
        {"class": "facts"},
        *(tag("div", {}, tag("dt", {}, text(key)), tag("dd", {}, name(value))) for key, value in rows.items()),
    )


def table(rows: Sequence[Sequence[str]], *, numbers_from: int | None = None) -> Html:
    """A table of texts whose first row is the header; columns from `numbers_from` on stand right."""
    header, *body = rows
    right = len(header) if numbers_from is None else numbers_from
    return data_table(
        [text(cell) for cell in header], [[name(cell) for cell in row] for row in body], numbers_from=right
    )


def data_table(header: Sequence[Html], body: Iterable[Sequence[Html]], *, numbers_from: int) -> Html:
    """A table of cells made already, which scrolls sideways where the screen is narrow."""
    kinds: list[Attributes] = [{"class": "number"} if place >= numbers_from else {} for place in range(len(header))]
    head = join(tag("th", kind, cell) for kind, cell in zip(kinds, header, strict=True))
    lines = [tag("tr", {}, *(tag("td", kind, cell) for kind, cell in zip(kinds, row, strict=True))) for row in body]
    inner = tag("table", {}, tag("thead", {}, tag("tr", {}, head)), tag("tbody", {}, *lines))
    return tag("div", {"class": "scroll"}, inner)


def folded(summary: str, *children: Html) -> Html:
    """What opens on a click."""
    return tag("details", {}, tag("summary", {}, text(summary)), *children)


def code(value: str) -> Html:
    """A command or a file, to copy."""
    return tag("pre", {}, tag("code", {}, Html(html.escape(_visible(value)))))


def _plain(value: str | float) -> str:
    if isinstance(value, str):
        return _visible(value)
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _visible(value: str) -> str:
    """Line breaks stay, a few in a row; other control and format characters become spaces, and so do broken ones."""
    lines: list[str] = []
    for line in value.splitlines():
        shown = "".join(char if char.isprintable() or char in JOINERS else " " for char in line)
        if shown.strip() or any(lines[-BLANK_LINES:]):
            lines.append(shown)
    return "\n".join(lines)
