"""A sheet of rows with their pictures: what was asked, what is true, what was answered, as a PNG."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supertrainer.benchmark.display import one_line
from supertrainer.benchmark.plots import GREEN, GREY, INK, fonts, new_figure, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL import Image

RED = "#c53030"
COLUMNS = 6
SIDE = 2.1  # inches of a tile's width
LINES = 5  # of text below a picture
WRAP = 30  # characters of a line
LARGEST = 320  # pixels that a picture is drawn with


@dataclass(frozen=True)
class Tile:
    """A row of the sheet.

    Attributes:
        row: its number in the split.
        pictures: of the row; none, one or several, which stand side by side.
        question: what was asked.
        true: what should have been answered.
        predicted: what was.
        is_right: whether that counts as right.
    """

    row: int
    pictures: Sequence[Image.Image]
    question: str
    true: str
    predicted: str
    is_right: bool


def draw_sheet(tiles: Sequence[Tile], *, title: str) -> bytes:
    """The tiles in rows of `COLUMNS`, a green frame around right ones and a red one around wrong ones, as a PNG.

    Args:
        tiles: at least one.
        title: above all of them.
    """
    columns = min(COLUMNS, len(tiles))
    lines = math.ceil(len(tiles) / columns)
    figure = new_figure(width=columns * SIDE, height=lines * (SIDE + 0.9) + 0.5)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK, parse_math=False)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for tile, axes in zip(tiles, grid.flat, strict=False):
        _draw(axes, tile)
    return png(figure)


def _draw(axes: Axes, tile: Tile) -> None:
    colour, mark = (GREEN, "right") if tile.is_right else (RED, "WRONG")
    axes.set_axis_on()
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(color=colour, linewidth=3)
    if tile.pictures:
        axes.imshow(_side_by_side(tile.pictures))
    else:
        axes.text(0.5, 0.5, "no picture", ha="center", va="center", color=GREY, transform=axes.transAxes)
        axes.set_box_aspect(1)
    style = {"fontsize": 7.5, "fontfamily": fonts(), "parse_math": False}
    axes.set_title(f"row {tile.row:,}: {mark}", loc="left", color=colour, fontweight="bold", **style)
    said = [one_line(tile.question, width=3 * WRAP), f"-> {one_line(tile.predicted, width=2 * WRAP) or '(nothing)'}"]
    said += [] if tile.is_right and tile.predicted == tile.true else [f"true: {one_line(tile.true, width=2 * WRAP)}"]
    wrapped = [line for text in said for line in textwrap.wrap(text, WRAP) or [""]]
    axes.set_xlabel("\n".join(wrapped[:LINES]), loc="left", color=INK, **style)


def _side_by_side(pictures: Sequence[Image.Image]) -> Image.Image:
    """Pictures of one height in a row, as large as they are or smaller."""
    from PIL import Image

    height = min(LARGEST, *(picture.height for picture in pictures), LARGEST)
    scaled = [picture.resize((max(round(picture.width * height / picture.height), 1), height)) for picture in pictures]
    gap = 4
    row = Image.new("RGB", (sum(one.width for one in scaled) + gap * (len(scaled) - 1), height), "white")
    left = 0
    for one in scaled:
        row.paste(one, (left, 0))
        left += one.width + gap
    row.thumbnail((LARGEST, LARGEST))
    return row
