"""Figures against bounds, and the table that shows them."""

from __future__ import annotations

import math

import pytest

from supertrainer.operations.verification.rows import (
    broken,
    conclusion,
    not_applicable,
    other_bits,
    same_bits,
    table,
    within,
)


@pytest.mark.parametrize(
    ("value", "bound", "verdict"),
    [
        (1e-5, 1e-5, "holds"),
        (1.1e-5, 1e-5, "BREAKS"),
        (0.0, 0.0, "holds"),
        (1e-30, 0.0, "BREAKS"),
        (math.nan, 1e-5, "BREAKS"),
        (math.inf, 1e-5, "BREAKS"),
    ],
)
def test_a_figure_holds_up_to_its_bound(value: float, bound: float, verdict: str) -> None:
    assert within("x", value, bound=bound).verdict == verdict
    assert within("x", value, bound=bound, unpromised="int8").verdict == "measured"


def test_bits_are_the_same_or_other_ones() -> None:
    assert [same_bits("x", *counts).verdict for counts in ((0, 5), (1, 5), (0, 0))] == ["holds", "BREAKS", "BREAKS"]
    assert [other_bits("x", *counts).verdict for counts in ((5, 5), (0, 5))] == ["holds", "BREAKS"]


def test_the_table_has_a_line_a_check_and_its_reason_below() -> None:
    rows = [
        within("split: halves", 2.5e-7, bound=1e-5),
        within("merge", 0.03, bound=1e-5, unpromised="rounded anew"),
        same_bits("resume", 3, 1_000),
        not_applicable("left", "positions"),
        broken("reload", "no head"),
    ]
    assert table(rows) == [
        "check          figure             bound    verdict",
        "---------------------------------------------------------",
        "split: halves  2.5e-07            ≤ 1e-05  holds",
        "merge          3.0e-02                     measured",
        "    not promised: rounded anew",
        "resume         3 of 1,000 differ  0        BREAKS",
        "left                                       not applicable",
        "    positions",
        "reload                                     BREAKS",
        "    no head",
    ]
    assert conclusion(rows) == "1 hold, 2 BREAK, 1 measured without a promise, 1 not applicable"
