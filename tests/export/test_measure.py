"""Figures between two models' logits, by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from supertrainer.export.measure import difference


def test_the_figures_are_those_of_a_calculation_by_hand() -> None:
    one = [torch.tensor([[0.0, math.log(3)], [math.log(3), 0.0]])]  # 1/4 3/4, then 3/4 1/4
    other = [torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])]  # 1/2 1/2, then the same
    found = difference(one, other)
    assert found.mean == pytest.approx(math.log(3) / 4)
    assert found.greatest == pytest.approx(math.log(3))
    assert found.kl == pytest.approx((0.25 * math.log(0.5) + 0.75 * math.log(1.5)) / 2)
    assert (found.agreement, found.tokens) == (0.5, 2)


def test_rows_of_any_length_weigh_by_their_tokens() -> None:
    rows = [torch.randn(length, 5, generator=torch.Generator().manual_seed(length)) for length in (1, 7)]
    shifted = [row + 1.0 for row in rows]
    found = difference(rows, shifted)
    assert (found.mean, found.greatest) == (pytest.approx(1.0), pytest.approx(1.0))
    assert found.kl == pytest.approx(0.0, abs=1e-6)
    at_once = difference([torch.cat(rows)], [torch.cat(shifted)])
    assert dataclasses.astuple(at_once) == pytest.approx(dataclasses.astuple(found), abs=1e-9)
