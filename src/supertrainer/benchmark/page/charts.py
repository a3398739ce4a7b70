"""Charts as inline SVG from plain numbers: curves over steps, scatter, bars.

Places are percentages, so a chart fills any width while its text keeps its size. Colours are classes of the style
sheet, which knows light, dark and print. The page's script reads `data-chart` and shows the values under the pointer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from supertrainer.benchmark.page.markup import Attributes, Html, join, name, tag, text
from supertrainer.benchmark.page.scales import Axis, Point, axis, spread, thinned, tick_text, value_text

MOST_POINTS = 700  # of a curve: more than a screen shows columns
MOST_DOTS = 3_000  # of a scatter
MOST_MARKS = 60  # points of a curve that are marked one by one
SCALE = 10_000  # units of the box that curves are drawn in


@dataclass(frozen=True)
class Series:
    """A curve.

    Attributes:
        name: what it shows, for the legend.
        points: (x, y) by rising x; finite.
        look: a line, a faint line behind others, or a line with every point marked.
        colour: 0, 1, 2 of the style sheet.
    """

    name: str
    points: Sequence[Point]
    look: Literal["line", "faint", "marked"] = "line"
    colour: int = 0


def lines(series: Sequence[Series], *, title: str, x: str = "optimizer step", from_zero: bool = False) -> Html:
    """Curves over one axis, with a legend that shows the values under the pointer (at first the last ones).

    Args:
        series: one at least, none of them empty.
        title: what is drawn.
        x: what the whole numbers along the bottom are.
        from_zero: whether zero belongs to the upright axis.
    """
    marked = [point[0] for one in series if one.look == "marked" for point in spread(one.points, most=MOST_POINTS)]
    series = [
        Series(one.name, thinned(one.points, most=MOST_POINTS, keep=marked), one.look, one.colour) for one in series
    ]
    across = axis([place for one in series for place, _ in one.points], whole=True)
    up = axis([value for one in series for _, value in one.points], from_zero=from_zero)
    curves = join(_curve(one, across=across, up=up) for one in series)
    dots = join(_dots(one, across=across, up=up) for one in series)
    cursor = tag("line", {"class": "cursor", "x1": "0", "x2": "0", "y1": "0%", "y2": "100%", "visibility": "hidden"})
    last = max(one.points[-1][0] for one in series)
    at = tag("span", {"class": "at"}, text("step "), tag("b", {}, text(f"{last:,.0f}")))
    data = {
        "low": across.low,
        "high": across.high,
        "series": [[[_short(px), _short(py)] for px, py in one.points] for one in series],
    }
    frame = _frame(title, across=across, up=up, x=x, inside=join([_stretched(curves), dots, cursor]))
    attributes = {"class": "chart", "data-chart": json.dumps(data, separators=(",", ":"))}
    caption = tag("figcaption", {}, tag("h3", {}, text(title)), at, *(_key(one) for one in series))
    return tag("figure", attributes, caption, frame)


def scatter(
    points: Sequence[Point], *, title: str, x: str, y: str, diagonal: bool = False, labels: Sequence[str] = ()
) -> Html:
    """Points of two measured values, such as the true and the predicted one.

    Args:
        points: (x, y), one at least, finite; of very many, evenly chosen ones are drawn.
        title: what is drawn.
        x: what the numbers along the bottom are.
        y: what the upright ones are.
        diagonal: both axes alike, with the line on which x = y.
        labels: what each point is, shown under the pointer.
    """
    chosen = spread([(float(place), 0.0) for place in range(len(points))], most=MOST_DOTS)
    places = [int(place) for place, _ in chosen]
    values = [points[place] for place in places]
    across, up = axis([value for value, _ in values]), axis([value for _, value in values])
    if diagonal:
        across = up = axis([value for point in values for value in point])
    kind = "dot c0" if len(values) <= MOST_MARKS else "dot faint-dot c0"
    line = tag("line", {"class": "diagonal", "x1": "0%", "y1": "100%", "x2": "100%", "y2": "0%"})
    dots = [
        _dot(points[place], across=across, up=up, kind=kind, said=labels[place] if labels else "") for place in places
    ]
    frame = _frame(title, across=across, up=up, x=x, inside=join([*([line] if diagonal else []), *dots]))
    drawn = "" if len(values) == len(points) else f", {len(values):,} of {len(points):,} points"
    caption = tag(
        "figcaption", {}, tag("h3", {}, text(title)), tag("span", {"class": "at"}, text(f"{y} over {x}{drawn}"))
    )
    return tag("figure", {"class": "chart square"}, caption, frame)


def bars(values: Mapping[str, float], *, title: str, strong: str | None = None) -> Html:
    """A bar for each named value, from zero; full length is 1 where no value is greater.

    Args:
        values: finite, not negative.
        title: what they are.
        strong: the one that the others are compared with.
    """
    full = max(1.0, *values.values()) if values else 1.0
    rows = [
        tag(
            "div",
            {"class": "bar-row strong" if label == strong else "bar-row"},
            tag("span", {}, name(label)),
            bar(value / full),
            tag("b", {}, text(f"{value:.4f}")),
        )
        for label, value in values.items()
    ]
    return tag("figure", {"class": "bars"}, tag("figcaption", {}, tag("h3", {}, text(title))), *rows)


def bar(share: float) -> Html:
    """A bar of this share of the width that there is."""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}%"
    rail = tag("rect", {"class": "rail", "width": "100%", "height": "100%", "rx": 2})
    filled = tag("rect", {"class": "filled", "width": width, "height": "100%", "rx": 2})
    return tag("svg", {"class": "bar", "aria-hidden": "true"}, rail, filled)


def _frame(title: str, *, across: Axis, up: Axis, x: str, inside: Html) -> Html:
    """Axes, grid and what is drawn inside."""
    grid, left, below = [], [], []
    for tick in up.ticks:
        y = f"{100 * (1 - up.place(tick)):.2f}%"
        grid.append(tag("line", {"class": "grid", "x1": "0%", "x2": "100%", "y1": y, "y2": y}))
        left.append(
            tag("text", {"x": "100%", "y": y, "dx": -8, "dy": "0.35em", "text-anchor": "end"}, text(tick_text(tick)))
        )
    for tick in across.ticks:
        place = across.place(tick)
        anchor = "start" if place < 0.02 else "end" if place > 0.98 else "middle"
        at: Attributes = {"x": f"{100 * place:.2f}%", "y": 16, "text-anchor": anchor}
        below.append(tag("text", at, text(tick_text(tick))))
    below.append(tag("text", {"x": "50%", "y": 34, "text-anchor": "middle", "class": "axis-name"}, text(x)))
    ranges = [f"{tick_text(one.low)} to {tick_text(one.high)}" for one in (across, up)]
    said = f"{title}: {x} {ranges[0]}, values {ranges[1]}"
    plot = tag("svg", {"class": "plot", "role": "img", "tabindex": 0, "aria-label": said}, *grid, inside)
    hidden: dict[str, str | float] = {"aria-hidden": "true"}
    return tag(
        "div",
        {"class": "frame"},
        tag("svg", {"class": "left", **hidden}, *left),
        plot,
        tag("svg", {"class": "below", **hidden}, *below),
    )


def _stretched(curves: Html) -> Html:
    box = {"viewBox": f"0 0 {SCALE} {SCALE}", "preserveAspectRatio": "none", "width": "100%", "height": "100%"}
    return tag("svg", {**box, "class": "curves"}, curves)


def _curve(one: Series, *, across: Axis, up: Axis) -> Html:
    places = (f"{SCALE * across.place(x):.0f},{SCALE * (1 - up.place(y)):.0f}" for x, y in one.points)
    return tag("polyline", {"class": f"curve {one.look} c{one.colour}", "points": " ".join(places)})


def _dots(one: Series, *, across: Axis, up: Axis) -> Html:
    """A circle at each point, where they are few or are what is shown; a line of one point would be nothing."""
    few = len(one.points) <= (MOST_MARKS if one.look == "marked" else 12)
    if one.look != "marked" and not few:
        return Html("")
    kind = f"dot c{one.colour}" if few else f"dot small c{one.colour}"
    return join(_dot(point, across=across, up=up, kind=kind, said=one.name) for point in one.points)


def _dot(point: Point, *, across: Axis, up: Axis, kind: str, said: str) -> Html:
    x, y = point
    at = {"cx": f"{100 * across.place(x):.2f}%", "cy": f"{100 * (1 - up.place(y)):.2f}%", "class": kind}
    words = f"{said}: {value_text(x)}, {value_text(y)}" if said else f"{value_text(x)}, {value_text(y)}"
    radius = 2.2 if "small" in kind or "faint" in kind else 4
    return tag("circle", {**at, "r": radius}, tag("title", {}, text(words)))


def _key(one: Series) -> Html:
    swatch = tag("svg", {"class": "swatch", "aria-hidden": "true"}, _sample(one))
    value = tag("b", {"class": "value"}, text(value_text(one.points[-1][1])))
    return tag("span", {"class": "key"}, swatch, text(f"{one.name} "), value)


def _sample(one: Series) -> Html:
    line = tag("line", {"class": f"curve {one.look} c{one.colour}", "x1": 0, "x2": "100%", "y1": "50%", "y2": "50%"})
    if one.look != "marked":
        return line
    return join([line, tag("circle", {"class": f"dot c{one.colour}", "cx": "50%", "cy": "50%", "r": 3.5})])


def _short(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.6g}")
