"""Which updates are left out."""

from __future__ import annotations

import json
import math

from supertrainer.trainers.pretrain_schema import GuardConfig
from supertrainer.trainers.pretraining.guard import Guard


def guard(**keys: object) -> Guard:
    return Guard(GuardConfig.model_validate({"window": 4, "stop_after": 3, **keys}))


def test_a_loss_or_a_gradient_that_is_not_finite_is_left_out_from_the_first_update_on() -> None:
    judge = guard()
    assert "nan" in judge.judge(loss=math.nan, grad_norm=1.0)
    assert "inf" in judge.judge(loss=1.0, grad_norm=math.inf)
    assert not judge.judge(loss=1.0, grad_norm=1.0)
    assert judge.skipped == 2


def test_a_spike_is_measured_against_a_full_window_of_updates_that_were_made() -> None:
    judge = guard(spike_sigmas=3.0)
    for loss in (1.0, 1.2, 1.0):
        assert not judge.judge(loss=loss, grad_norm=2.0)
    assert not judge.judge(loss=1.2, grad_norm=2.2)  # mean 1.1, deviation 0.1 from here on
    assert not judge.judge(loss=1.39, grad_norm=2.0)
    judge = guard(spike_sigmas=3.0)
    for loss in (1.0, 1.2, 1.0, 1.2):
        judge.judge(loss=loss, grad_norm=2.0 + loss / 10)
    assert "loss 1.41 is 3.1 deviations above the mean 1.1" in judge.judge(loss=1.41, grad_norm=2.1)
    assert "gradient norm" in judge.judge(loss=1.1, grad_norm=9.0)
    assert not judge.judge(loss=0.1, grad_norm=0.1)  # a fall is no spike


def test_a_window_without_any_spread_knows_no_spikes() -> None:
    judge = guard(spike_sigmas=3.0)
    for _ in range(5):
        assert not judge.judge(loss=1.0, grad_norm=1.0)
    assert not judge.judge(loss=1.1, grad_norm=1.0)


def test_without_sigmas_only_what_is_not_finite_is_left_out() -> None:
    judge = guard(spike_sigmas=None)
    for loss in (1.0, 1.2, 1.0, 1.2):
        judge.judge(loss=loss, grad_norm=1.0)
    assert not judge.judge(loss=1e9, grad_norm=1e9)


def test_it_gives_up_after_so_many_in_a_row() -> None:
    judge = guard()
    for loss in (math.nan, math.nan, 1.0, math.nan, math.nan):
        judge.judge(loss=loss, grad_norm=1.0)
    assert not judge.has_given_up
    judge.judge(loss=math.nan, grad_norm=1.0)
    assert judge.has_given_up
    assert judge.skipped == 5


def test_a_state_goes_on_where_it_was() -> None:
    judge, other = guard(spike_sigmas=3.0), guard(spike_sigmas=3.0)
    for loss in (1.0, 1.2, 1.0, 1.2, math.nan):
        judge.judge(loss=loss, grad_norm=1.0)
    other.load(json.loads(json.dumps(judge.state())))
    assert other.state() == judge.state()
    assert other.judge(loss=1.41, grad_norm=1.0) == judge.judge(loss=1.41, grad_norm=1.0) != ""
