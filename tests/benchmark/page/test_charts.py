"""Axes, fewer points and charts: what is marked where, worked out by hand."""

from __future__ import annotations

import math
import random
import re

import pytest

from supertrainer.benchmark.page import charts
from supertrainer.benchmark.page.matrix import confused, matrix, most_confused
from supertrainer.benchmark.page.scales import axis, spread, thinned, tick_text, value_text


def test_ticks_are_round_and_the_axis_ends_with_them() -> None:
    assert axis([0.13, 0.87]) == (0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    assert axis([2e-5], from_zero=True).ticks == (0.0, 5e-6, 1e-5, 1.5e-5, 2e-5)
    assert axis([-3.0, 4.0]).ticks == (-4.0, -2.0, 0.0, 2.0, 4.0)


def test_steps_are_whole_and_fill_the_axis() -> None:
    assert axis([1, 4], whole=True) == (1, 4, (1, 2, 3, 4))
    assert axis([5, 40], whole=True) == (5, 40, (10, 20, 30, 40))


@pytest.mark.parametrize("values", [[0.0], [7.0], [-2.0, -2.0], [1e-12], [1e12]])
def test_an_axis_of_one_value_has_room_on_both_sides(values: list[float]) -> None:
    for from_zero in (False, True):
        low, high, ticks = axis(values, from_zero=from_zero)
        assert low <= values[0] <= high
        assert low < high
        assert ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.05, "0.05"), (1500, "1,500"), (20_000, "20k"), (3e6, "3M"), (2e-5, "2e-5"), (0, "0"), (-0.25, "-0.25")],
)
def test_tick_text(value: float, text: str) -> None:
    assert tick_text(value) == text


def test_value_text() -> None:
    assert [value_text(value) for value in (12.0, 0.123456, 9.2e-5, 1_000_000)] == [
        "12",
        "0.1235",
        "9.2e-5",
        "1,000,000",
    ]


def test_many_points_become_few_and_no_spike_is_lost() -> None:
    chance = random.Random(0)
    points = [(float(step), chance.random()) for step in range(200_000)]
    points[123_456] = (123_456.0, 50.0)
    few = thinned(points, most=700, keep=[177_777.0])
    assert len(few) <= 703
    assert {points[0], points[-1], points[123_456], points[177_777]} <= set(few)
    assert few == sorted(few)
    assert min(value for _, value in few) == min(value for _, value in points)


def test_few_points_stay_as_they_are() -> None:
    points = [(1.0, 2.0), (2.0, 1.0)]
    assert thinned(points, most=2) == spread(points, most=2) == points
    assert spread([(float(x), 0.0) for x in range(101)], most=3) == [(0.0, 0.0), (50.0, 0.0), (100.0, 0.0)]


def test_a_curve_runs_from_corner_to_corner() -> None:
    html = charts.lines([charts.Series("loss", [(1, 1.0), (2, 0.0)])], title="Loss")
    assert 'points="0,0 10000,10000"' in html
    assert 'data-chart="{&quot;low&quot;:1,&quot;high&quot;:2,&quot;series&quot;:[[[1,1],[2,0]]]}"' in html


def test_points_of_a_scatter_stand_where_their_values_are() -> None:
    html = charts.scatter(
        [(0.0, 0.0), (4.0, 1.0)], title="t", x="true", y="predicted", diagonal=True, labels=["a", "<b>"]
    )
    assert re.findall(r'cx="([\d.]+)%" cy="([\d.]+)%"', html) == [("0.00", "100.00"), ("100.00", "75.00")]
    assert "<title>&lt;b&gt;: 4, 1</title>" in html
    assert 'class="diagonal"' in html
    many = charts.scatter([(float(x), 0.5) for x in range(10_000)], title="t", x="x", y="y")
    assert many.count("<circle") == 3_000
    assert "3,000 of 10,000 points" in many


def test_bars_are_shares_of_the_longest_where_one_is_above_one() -> None:
    assert re.findall(r'filled" width="([\d.]+)%', charts.bars({"a": 0.5, "b": 0.25}, title="t")) == ["50.0", "25.0"]
    assert re.findall(r'filled" width="([\d.]+)%', charts.bars({"a": 20.0, "b": 5.0}, title="t")) == ["100.0", "25.0"]


def test_cells_hold_count_share_and_colour() -> None:
    html = matrix([[9, 1], [0, 0]], labels=["a", "<b>"])
    assert 'class="right s18" title="a → a: 9 of 10 rows, 90%"><b>9</b><i>90</i>' in html
    assert 'class="wrong s2" title="a → &lt;b&gt;: 1 of 10 rows, 10%"><b>1</b><i>10</i>' in html
    assert 'class="right s0 none"' in html
    assert "<b>b" not in html


def test_confusions_by_frequency() -> None:
    found = confused([[5, 1, 0], [3, 0, 3], [0, 7, 1]], labels=["a", "b", "c"])
    assert [(pair.true, pair.predicted, pair.rows) for pair in found[:2]] == [("c", "b", 7), ("b", "a", 3)]
    assert found[0].share == 7 / 8
    assert confused([[3, 0], [0, 2]], labels=["a", "b"]) == []


def test_classes_beyond_the_most_confused_are_one() -> None:
    counts = [[5, 0, 0, 1], [0, 9, 0, 0], [0, 0, 9, 0], [4, 0, 0, 2]]
    few, labels = most_confused(counts, labels=["a", "b", "c", "d"], most=2)
    assert labels == ["a", "d", "all others"]
    assert few == [[5, 1, 0], [4, 2, 0], [0, 0, 18]]
    assert most_confused(counts, labels=["a", "b", "c", "d"], most=4) == (counts, ["a", "b", "c", "d"])


def test_no_value_is_drawn_where_there_is_no_place() -> None:
    html = charts.lines([charts.Series("flat", [(3, 0.0), (3, 0.0)])], title="t")
    assert "nan" not in html
    assert not math.isnan(axis([0.0, 0.0]).place(0.0))
