"""The pictures of a report, as PNG bytes: curves over steps, the confusion matrix, the scores of each class.

Drawn with figures of their own, not through pyplot: no window, no global state, no backend to choose.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from supertrainer.core.records import last_per_step
from supertrainer.metrics.scores import ClassScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DPI = 150
BLUE, ORANGE, GREEN, GREY, INK = "#2b6cb0", "#dd6b20", "#2f855a", "#a0aec0", "#2d3748"
FIRST_FONT = "DejaVu Sans"  # comes with matplotlib: Latin, Greek, Cyrillic, Arabic, symbols
MORE_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Source Han Sans SC", "Microsoft YaHei")
LONGEST_NAME = 28  # characters
FEW = 12  # classes that fit in large cells
MOST_NUMBERED_CLASSES = 60  # beyond them a cell is too small for its number
MOST_BARS = 100
MOST_INCHES = 22.0  # of a matrix or of all bars


def draw_loss(
    records: Iterable[Mapping[str, Any]], *, train: str = "loss", evaluation: str = "eval_loss"
) -> bytes | None:
    """Training loss at every logged step, its running mean where there are many, and a point at each evaluation.

    Args:
        records: rows of metrics.jsonl; of several rows of a step the last that has the key counts.
        train: key of the training loss.
        evaluation: key of the evaluation loss.

    Returns:
        A PNG, or None where no record has either.
    """
    records = list(records)
    trained, evaluated = series(records, key=train), series(records, key=evaluation)
    if not trained and not evaluated:
        return None
    figure = new_figure(width=8.0, height=4.5)
    axes = _axes(figure, title="Loss", x="optimizer step", y="loss")
    if trained:
        steps, losses = zip(*trained, strict=True)
        smooth = len(trained) > 60
        width, marker = (0.8, "") if smooth else (1.6, "." if len(trained) < 12 else "")
        label = "training, each logged step" if smooth else "training"
        axes.plot(steps, losses, color=GREY if smooth else BLUE, linewidth=width, marker=marker, label=label)
        if smooth:
            axes.plot(steps, _running_mean(losses), color=BLUE, linewidth=1.8, label="training, running mean")
    if evaluated:
        axes.plot(
            *zip(*evaluated, strict=True), color=ORANGE, linewidth=1.2, marker="o", markersize=5, label="evaluation"
        )
    axes.legend(frameon=False)
    return png(figure)


def draw_learning_rate(records: Iterable[Mapping[str, Any]], *, key: str = "lr") -> bytes | None:
    """The learning rate at every logged step, as a PNG; None where no record has one."""
    rates = series(records, key=key)
    if not rates:
        return None
    figure = new_figure(width=8.0, height=3.2)
    axes = _axes(figure, title="Learning rate", x="optimizer step", y="learning rate")
    axes.plot(*zip(*rates, strict=True), color=GREEN, linewidth=1.8, marker="." if len(rates) < 12 else "")
    axes.set_ylim(bottom=0.0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    return png(figure)


def draw_confusion(confusion: Sequence[Sequence[int]], *, labels: Sequence[str]) -> bytes:
    """The confusion matrix as a PNG: counts as numbers, the share of the true class as colour.

    Args:
        confusion: rows by true class, then by predicted class, (C, C).
        labels: the names of the C classes.
    """
    from matplotlib.colors import PowerNorm

    size = len(labels)
    shares = [[count / max(sum(row), 1) for count in row] for row in confusion]
    digits = max(len(str(count)) for row in confusion for count in row)
    cell = 1.0 if size <= 6 else 0.7 if size <= FEW else 0.28
    cell = min(max(cell, 0.085 * digits + 0.06), MOST_INCHES / size)
    figure = new_figure(width=3.0 + cell * size, height=2.4 + cell * size)
    axes = _axes(figure, title="Confusion matrix", x="predicted", y="true")
    # where cells are too many to read, confusions of a few percent must show as colour
    image = axes.imshow(shares, cmap="Blues", norm=PowerNorm(1.0 if size <= FEW else 0.5, vmin=0.0, vmax=1.0))
    if size <= MOST_NUMBERED_CLASSES:
        font = min(11.0 if size <= FEW else 7.5, 92.0 * cell / digits)
        style = {"ha": "center", "va": "center", "fontsize": font, "in_layout": False}  # inside: nothing to lay out
        dark = 0.55 if size <= FEW else 0.3  # share from which white is easier to read
        for true, row in enumerate(confusion):
            for predicted, count in enumerate(row):
                colour = "white" if shares[true][predicted] > dark else INK if count else GREY
                if count or size <= FEW:
                    axes.text(predicted, true, str(count), color=colour, **style)
    _name_cells(axes, names=drawable(labels), cell=cell)
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 4.0 / (cell * size)), aspect=25, pad=0.02)
    bar.set_label("share of the true class", color=INK)
    return png(figure)


def draw_class_scores(scores: Sequence[ClassScore]) -> bytes:
    """F1 of each class as a bar with marks for its precision and recall, as a PNG. Of many classes, the worst."""
    title = "Scores of each class (rows)"
    indexed = list(enumerate(scores))
    if len(indexed) > MOST_BARS:
        title = f"Scores of the {MOST_BARS} classes of least F1 (rows)"
        indexed = sorted(sorted(indexed, key=lambda item: item[1].f1)[:MOST_BARS], key=lambda item: item[0])
    shown = [score for _, score in indexed]
    all_names = drawable([score.name for score in scores])
    names = [f"{all_names[index]}  ({score.support:,})" for index, score in indexed]
    few, places = len(shown) <= FEW, range(len(shown))
    figure = new_figure(width=8.0, height=1.5 + min(0.45 if few else 0.27, MOST_INCHES / len(shown)) * len(shown))
    axes = _axes(figure, title=title, x="score", y="")
    bars = axes.barh(places, [score.f1 for score in shown], height=0.7, color=BLUE, alpha=0.55, label="F1")
    style = {"s": 34 if few else 18, "zorder": 3, "linewidths": 0, "clip_on": False}
    diamonds = axes.scatter(
        [score.precision for score in shown], places, marker="D", color=ORANGE, label="precision", **style
    )
    dots = axes.scatter([score.recall for score in shown], places, marker="o", color=GREEN, label="recall", **style)
    axes.set_yticks(places, names, fontsize=10 if few else 8, fontfamily=fonts(), parse_math=False)
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(len(shown) - 0.4, -0.6)  # the first class on top
    axes.grid(visible=False, axis="y")
    figure.legend(handles=[bars, diamonds, dots], loc="outside lower center", ncols=3, frameon=False)
    return png(figure)


def series(records: Iterable[Mapping[str, Any]], *, key: str) -> list[tuple[int, float]]:
    """(step, value) of each step that has a finite number under `key`; the last record of a step counts."""
    values = [(row["step"], row.get(key)) for row in last_per_step(records)]
    return [(step, float(value)) for step, value in values if isinstance(value, int | float) and math.isfinite(value)]


def drawable(names: Sequence[str]) -> list[str]:
    """Class names on one line and cut to length; `class 3` where no font here has the characters of one."""
    from matplotlib.font_manager import findfont, get_font

    known = set().union(*(get_font(findfont(font)).get_charmap() for font in fonts()))
    drawn = []
    for index, name in enumerate(names):
        line = " ".join(name.split())
        if not line or any(ord(character) not in known for character in line):
            drawn.append(f"class {index}")
        else:
            drawn.append(line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1].rstrip() + "…")
    return drawn


def fonts() -> list[str]:
    """The font that matplotlib brings, and those installed here for what it lacks."""
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [FIRST_FONT, *(font for font in MORE_FONTS if font in installed)]


def _running_mean(values: Sequence[float]) -> list[float]:
    """Mean over a centred window of a twentieth of the values, cut off at both ends: no lag behind the curve."""
    sums = [0.0, *itertools.accumulate(values)]
    half, size = max(len(values) // 40, 1), len(values)
    windows = [(max(place - half, 0), min(place + half + 1, size)) for place in range(size)]
    return [(sums[end] - sums[start]) / (end - start) for start, end in windows]


def _name_cells(axes: Axes, *, names: Sequence[str], cell: float) -> None:
    """Class names along both axes, and thin lines between the cells; `cell` is their size in inches."""
    size, font = len(names), 10.0 if len(names) <= FEW else 8.0
    ticks = range(0, size, math.ceil(0.14 / cell))  # a line of text needs 0.14 inch
    shown = [names[tick] for tick in ticks]
    style = {"fontsize": font, "fontfamily": fonts(), "parse_math": False}
    level = max(map(len, names)) * font * 0.6 / 72 < cell
    slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if size <= FEW else {"rotation": 90}
    axes.set_xticks(ticks, shown, **style, **({} if level else slanted))
    axes.set_yticks(ticks, shown, **style)
    between = [edge - 0.5 for edge in range(1, size)]
    axes.set_xticks(between, minor=True)
    axes.set_yticks(between, minor=True)
    axes.grid(visible=False)
    axes.grid(visible=True, which="minor", color="#cbd5e0", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


def new_figure(*, width: float, height: float, dpi: int = DPI) -> Figure:
    """An empty figure of these inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, layout="constrained")


def _axes(figure: Figure, *, title: str, x: str, y: str) -> Axes:
    axes = figure.add_subplot()
    dress(axes, title=title, x=x, y=y, fontsize=13, fontweight="bold")
    return axes


def dress(axes: Axes, *, title: str, x: str, y: str, **of_title: Any) -> None:
    """Gives axes their names, and the look that all have.

    Args:
        of_title: size and weight of its letters.
    """
    axes.set_title(title, loc="left", color=INK, **{"fontsize": 11, **of_title})
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    axes.tick_params(colors=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)


def png(figure: Figure, *, margin: float = 0.15) -> bytes:
    """A figure as the bytes of a PNG file.

    Args:
        margin: inches around what is drawn.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", facecolor="white", bbox_inches="tight", pad_inches=margin)
    return buffer.getvalue()
