"""The coordinate check: flat under μP, and every fault of a parametrization shows as a slope."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import pytest

from supertrainer.benchmark.coordinates import Coordinate, CoordinateCheck, breaches, measure, slope, slopes
from supertrainer.models import pretrain
from supertrainer.models.mup import Multipliers, MupTable, Role, Rule

SMALL = CoordinateCheck(sizes=(64, 128, 256))
DEEP = CoordinateCheck(axis="depth", sizes=(2, 4, 8), other=64, steps=1)


def fitted(check: CoordinateCheck, parametrization: str = "mup") -> Mapping[tuple[str, int], float]:
    return slopes(measure(check, parametrization=parametrization))


@pytest.mark.parametrize(
    ("check", "control"),
    [(SMALL, "residual after step 2: slope +"), (DEEP, "ffn after step 1: slope -")],
    ids=["width", "depth"],
)
def test_mup_is_flat_and_the_standard_parametrization_is_not(check: CoordinateCheck, control: str) -> None:
    assert breaches(fitted(check)) == []
    assert any(told.startswith(control) for told in breaches(fitted(check, "sp")))


def every_rule(change: Callable[[Rule], Rule], monkeypatch: pytest.MonkeyPatch) -> None:
    """Has every rule of the table changed."""
    right = pretrain.mup_table

    def wrong(*arguments: object, **options: object) -> MupTable:
        table = right(*arguments, **options)
        rules = {name: change(rule) for name, rule in table.rules.items()}
        return dataclasses.replace(table, rules=MappingProxyType(rules))

    monkeypatch.setattr(pretrain, "mup_table", wrong)


def test_a_learning_rate_that_is_not_divided_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    every_rule(lambda rule: dataclasses.replace(rule, lr=1.0), monkeypatch)
    told = breaches(fitted(SMALL))
    assert {line.split(": ")[0] for line in told} >= {f"residual after step {step}" for step in (2, 3, 4)}
    assert not any("step 0" in line for line in told)


def test_an_initialisation_that_is_not_scaled_shows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(rule: Rule) -> Rule:
        scaled = rule.role in (Role.HIDDEN, Role.RESIDUAL) and rule.std is not None
        return dataclasses.replace(rule, std=rule.std * math.sqrt(rule.ratio)) if scaled else rule

    every_rule(change, monkeypatch)
    assert breaches(fitted(dataclasses.replace(SMALL, steps=1)))[0].startswith("attention after step 0: slope +1.")


def test_a_missing_multiplier_of_the_logits_shows_in_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pretrain.forward_multipliers

    def wrong(*arguments: object) -> Multipliers:
        return dataclasses.replace(right(*arguments), output=1.0)

    monkeypatch.setattr(pretrain, "forward_multipliers", wrong)
    told = breaches(fitted(SMALL))
    assert [line.split(":")[0] for line in told] == [f"logits after step {step}" for step in range(5)]


def test_a_slope_is_the_exponent_of_a_power_law() -> None:
    assert slope([(64, 3 * 64**0.5), (128, 3 * 128**0.5), (512, 3 * 512**0.5)]) == pytest.approx(0.5)
    assert math.isnan(slope([(64, 1.0), (128, math.inf)]))
    assert breaches({("residual", 1): math.nan}) == [
        "residual after step 1: slope +nan, right is from -0.30 to +0.20"
    ]  # fmt: skip


def test_seeds_and_blocks_are_averaged_before_the_slope() -> None:
    values = [(64, 0, 0, 1.0), (64, 1, 1, 3.0), (128, 0, 0, 4.0), (128, 1, 1, 4.0)]
    rows = [Coordinate("mup", size, seed, 0, "ffn", block, value) for size, seed, block, value in values]
    assert slopes(rows) == {("ffn", 0): pytest.approx(1.0)}
