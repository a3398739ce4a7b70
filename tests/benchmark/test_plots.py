"""Pictures are whole PNGs of a plausible size, with what they should show."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest

from supertrainer.benchmark.plots import (
    draw_class_scores,
    draw_confusion,
    draw_learning_rate,
    draw_loss,
    drawable,
    series,
)
from supertrainer.metrics.scores import ClassScore

RECORDS = [{"step": step, "loss": 2.0 / step, "lr": 1e-4 / step} for step in range(1, 101)] + [
    {"step": 50, "eval_loss": 0.1},
    {"step": 100, "eval_loss": 0.05},
]


def size(png: bytes) -> tuple[int, int]:
    """Width and height in pixels of a PNG all of whose chunks are whole."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    place, kinds = 8, []
    while place < len(png):
        length = int.from_bytes(png[place : place + 4])
        chunk = png[place + 4 : place + 8 + length]
        assert zlib.crc32(chunk) == int.from_bytes(png[place + 8 + length : place + 12 + length])
        kinds.append(chunk[:4])
        place += 12 + length
    assert (kinds[0], kinds[-1]) == (b"IHDR", b"IEND")
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])


def test_series_takes_the_last_finite_value_of_a_step() -> None:
    records = [
        {"step": 2, "loss": 5.0},
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 4},
        {"step": 2, "eval_loss": 1.0},
        {"step": 3, "loss": float("nan")},
        {"loss": 9.0},
    ]
    assert series(records, key="loss") == [(1, 3.0), (2, 4.0)]
    assert series(records, key="lr") == []


def test_curves_are_pictures_of_a_screen_width() -> None:
    for png in (draw_loss(RECORDS), draw_learning_rate(RECORDS)):
        assert png is not None
        width, height = size(png)
        assert 1000 < width < 1400
        assert 400 < height < 900
        assert len(png) > 10_000


def test_evaluation_points_and_training_line_are_both_drawn() -> None:
    only_training = [row for row in RECORDS if "loss" in row]
    only_evaluation = [row for row in RECORDS if "eval_loss" in row]
    assert len({draw_loss(RECORDS), draw_loss(only_training), draw_loss(only_evaluation), None}) == 4


def test_nothing_to_draw_is_no_picture() -> None:
    assert draw_loss([{"step": 1, "grad_norm": 1.0}]) is None
    assert draw_learning_rate([]) is None
    assert draw_loss([{"step": 1, "loss": float("nan")}]) is None


@pytest.mark.parametrize(("classes", "least", "most"), [(1, 400, 900), (2, 500, 1000), (50, 1800, 3000)])
def test_confusion_grows_with_its_classes_up_to_a_bound(classes: int, least: int, most: int) -> None:
    confusion = [[90 * (true == predicted) for predicted in range(classes)] for true in range(classes)]
    png = draw_confusion(confusion, labels=[f"class number {index}" for index in range(classes)])
    assert least < size(png)[0] < most
    assert least < size(png)[1] < most


def test_confusion_of_no_rows_and_of_very_many_can_be_drawn() -> None:
    empty = draw_confusion([[0, 0], [0, 0]], labels=["a", "b"])
    assert empty != draw_confusion([[10**9, 0], [0, 10**9]], labels=["a", "b"])


def test_confusion_is_not_drawn_transposed() -> None:
    assert draw_confusion([[5, 9], [0, 5]], labels=["a", "b"]) != draw_confusion([[5, 0], [9, 5]], labels=["a", "b"])


@pytest.mark.parametrize(
    ("classes", "least", "most"), [(1, 150, 500), (2, 250, 500), (50, 1800, 2600), (150, 3000, 3800)]
)
def test_class_scores_grow_in_height_only(classes: int, least: int, most: int) -> None:
    png = draw_class_scores([ClassScore(f"class {index}", 0.5, 1.0, 2 / 3, 1234) for index in range(classes)])
    width, height = size(png)
    assert 1000 < width < 1400
    assert least < height < most


def test_of_very_many_classes_the_worst_are_shown() -> None:
    worst = [ClassScore(f"worst {index}", 0.1, 0.1, 0.1, 1) for index in range(100)]
    pictures = {draw_class_scores([ClassScore(name, 1.0, 1.0, 1.0, 1), *worst]) for name in ("best", "another")}
    assert len(pictures) == 1


def test_names_that_markup_or_fonts_would_spoil_are_drawn() -> None:
    names = ["$x_1", "$\\frac$", "two\nlines", "\U0001f600", "n" * 200, " "]
    size(draw_confusion([[1] * 6] * 6, labels=names))
    size(draw_class_scores([ClassScore(name, 1.0, 1.0, 1.0, 1) for name in names]))


def test_drawable_names() -> None:
    names = ["two\n lines", "naïve Ω ж", "\U00012000", " \t", "n" * 29]  # the third is cuneiform
    assert drawable(names) == ["two lines", "naïve Ω ж", "class 2", "class 3", "n" * 27 + "…"]


def test_drawing_leaves_the_global_state_alone() -> None:
    code = (
        "import sys, matplotlib; before = dict(matplotlib.rcParams)\n"
        "from supertrainer.benchmark.plots import draw_confusion; draw_confusion([[1]], labels=['a'])\n"
        "sys.exit(dict(matplotlib.rcParams) != before or 'matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
