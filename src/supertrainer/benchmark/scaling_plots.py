"""Figures over the size of a model, as PNG bytes: coordinates, and losses over the learning rate."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from supertrainer.benchmark.coordinates import PLACES, Coordinate, slopes
from supertrainer.benchmark.plots import INK, dress, new_figure, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 80  # small files: they are kept beside documents
TITLES = {"attention": "attention", "ffn": "feed-forward", "residual": "residual stream", "logits": "logits"}


def draw_coordinates(coordinates: Sequence[Coordinate], *, title: str, size_name: str) -> bytes:
    """Mean absolute value over size, both axes logarithmic: a panel a place, a line a step, its slope beside it.

    Args:
        coordinates: of one parametrization; averaged over seeds and blocks, which show as a band from the least to the
            greatest seed.
        size_name: what grows, for the axis.
    """
    from matplotlib import colormaps

    figure = new_figure(width=14.0, height=4.8, dpi=DPI)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    found = slopes(coordinates)
    steps = sorted({step for _, step in found})
    panels = figure.subplots(1, len(PLACES))
    for axes, place in zip(panels, PLACES, strict=True):
        dress(axes, title=TITLES[place], x=size_name, y="mean |activation|" if place == PLACES[0] else "")
        for step in steps:
            sizes, low, middle, high = _line(one for one in coordinates if (one.place, one.step) == (place, step))
            colour = colormaps["viridis"](0.9 * step / max(steps[-1], 1))
            axes.plot(sizes, middle, color=colour, marker="o", markersize=4, label=f"{step}: {found[place, step]:+.2f}")
            axes.fill_between(sizes, low, high, color=colour, alpha=0.12, linewidth=0)
        _logarithmic_sizes(axes, sizes)
        axes.set_yscale("log", base=2)
        axes.legend(
            title="slope after step", title_fontsize=9, fontsize=9, frameon=False, ncols=3, columnspacing=1.0,
            handlelength=1.2, loc="upper center", bbox_to_anchor=(0.5, -0.16),
        )  # fmt: skip
    # The same height of every panel: a slope looks the same in all of them.
    spans = [tuple(map(math.log2, axes.get_ylim())) for axes in panels]
    tallest = max(top - bottom for bottom, top in spans)
    for axes, (bottom, top) in zip(panels, spans, strict=True):
        more = (tallest - (top - bottom)) / 2
        axes.set_ylim(2 ** (bottom - more), 2 ** (top + more))
    return png(figure, margin=0.1)


def _line(coordinates: Iterable[Coordinate]) -> tuple[list[int], list[float], list[float], list[float]]:
    """Sizes; then of each the least seed's mean over blocks, the mean of all, and the greatest seed's."""
    values: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in coordinates:
        values[one.size][one.seed].append(one.value)
    sizes = sorted(values)
    of_seeds = [[statistics.fmean(blocks) for blocks in values[size].values()] for size in sizes]
    return sizes, [min(each) for each in of_seeds], [statistics.fmean(e) for e in of_seeds], [max(e) for e in of_seeds]


def draw_transfer(losses: Mapping[str, Mapping[int, Mapping[float, float]]], *, title: str) -> bytes:
    """Loss over learning rate, a line a width and its least loss as a star: a panel a parametrization.

    Args:
        losses: parametrization -> width -> learning rate -> loss. What isn't finite is left out.
    """
    from matplotlib import colormaps

    figure = new_figure(width=5.6 * len(losses), height=4.4, dpi=DPI)
    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    panels = figure.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    for axes, (name, widths) in zip(panels, losses.items(), strict=True):
        dress(axes, title=name, x="learning rate", y="loss" if axes is panels[0] else "")
        for number, (width, curve) in enumerate(sorted(widths.items())):
            points = sorted((rate, loss) for rate, loss in curve.items() if math.isfinite(loss))
            if not points:
                continue
            colour = colormaps["viridis"](0.9 * number / max(len(widths) - 1, 1))
            axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=4, label=f"width {width}")
            best = min(points, key=lambda point: point[1])
            axes.plot(*best, color=colour, marker="*", markersize=15, markeredgecolor="white")
        axes.set_xscale("log", base=2)
        axes.legend(frameon=False, fontsize=9)
    return png(figure, margin=0.1)


def _logarithmic_sizes(axes: Axes, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
