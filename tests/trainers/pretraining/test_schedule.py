"""The learning rate at every boundary of every schedule."""

from __future__ import annotations

import math

import pytest

from supertrainer.trainers.pretrain_schema import ScheduleConfig
from supertrainer.trainers.pretraining.schedule import common_steps, lr_share


def shares(max_steps: int, **keys: object) -> list[float]:
    schedule = ScheduleConfig.model_validate(keys)
    return [lr_share(schedule, update, max_steps=max_steps) for update in range(1, max_steps + 1)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"name": "constant"}, [1, 1, 1, 1, 1]),
        ({"name": "constant", "warmup_steps": 1}, [1, 1, 1, 1, 1]),
        ({"name": "constant", "warmup_steps": 4}, [0.25, 0.5, 0.75, 1, 1]),
        ({"name": "constant", "warmup_steps": 5}, [0.2, 0.4, 0.6, 0.8, 1]),
        ({"name": "linear", "warmup_steps": 0, "final_share": 0.0}, [1, 0.75, 0.5, 0.25, 0]),
        ({"name": "linear", "warmup_steps": 1, "final_share": 0.0}, [1, 0.75, 0.5, 0.25, 0]),
        ({"name": "linear", "warmup_steps": 2, "final_share": 0.1}, [0.5, 1, 0.7, 0.4, 0.1]),
        ({"name": "linear", "warmup_steps": 5, "final_share": 0.1}, [0.2, 0.4, 0.6, 0.8, 1]),
        ({"name": "linear", "warmup_steps": 1, "decay_steps": 2, "final_share": 0.5}, [1, 0.75, 0.5, 0.5, 0.5]),
        ({"name": "linear", "decay_steps": 0, "final_share": 0.5}, [1, 1, 1, 1, 1]),
        ({"name": "cosine", "warmup_steps": 1, "final_share": 0.0}, [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]),
        ({"name": "cosine", "warmup_steps": 3, "final_share": 0.1}, [1 / 3, 2 / 3, 1, 0.55, 0.1]),
        ({"name": "wsd", "warmup_steps": 2, "decay_steps": 2, "final_share": 0.1}, [0.5, 1, 1, 0.55, 0.1]),
        ({"name": "wsd", "warmup_steps": 2, "decay_steps": 3, "final_share": 0.1}, [0.5, 1, 0.7, 0.4, 0.1]),
        ({"name": "wsd", "warmup_steps": 2, "decay_steps": 1, "final_share": 0.0}, [0.5, 1, 1, 1, 0]),
        ({"name": "wsd", "warmup_steps": 2, "decay_steps": 0, "final_share": 0.0}, [0.5, 1, 1, 1, 1]),
        ({"name": "wsd", "warmup_steps": 0, "decay_steps": 5, "final_share": 0.0}, [1, 0.75, 0.5, 0.25, 0]),
        ({"name": "wsd", "warmup_steps": 1, "decay_steps": 9, "final_share": 0.0}, [1, 0.75, 0.5, 0.25, 0]),
        ({"name": "wsd", "warmup_steps": 10, "decay_steps": 9}, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"name": "cosine", "warmup_steps": 10}, [0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_five_updates_have_these_rates(keys: dict[str, object], expected: list[float]) -> None:
    assert shares(5, **keys) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "wsd"])
@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_the_peak_is_reached_exactly_once_warm_and_never_passed(name: str, warmup: int) -> None:
    decay = {"decay_steps": 9} if name == "wsd" else {}
    found = shares(40, name=name, warmup_steps=warmup, **decay)
    assert found[max(warmup, 1) - 1] == 1.0 == max(found)
    assert all(math.isfinite(share) and share > 0 for share in found)
    assert found[-1] == (1.0 if name == "constant" else pytest.approx(0.1, abs=1e-15))


@pytest.mark.parametrize(
    ("keys", "one", "other", "common"),
    [
        ({"name": "constant", "warmup_steps": 3}, 10, 20, 10),
        ({"name": "wsd", "decay_steps": 4}, 10, 20, 6),
        ({"name": "wsd", "decay_steps": 0}, 10, 20, 10),
        ({"name": "cosine", "warmup_steps": 3}, 10, 20, 3),
        ({"name": "linear", "decay_steps": 6}, 10, 20, 10),
    ],
)
def test_runs_of_two_lengths_have_their_first_updates_in_common(
    keys: dict[str, object], one: int, other: int, common: int
) -> None:
    schedule = ScheduleConfig.model_validate(keys)
    assert common_steps(schedule, one, other) == common_steps(schedule, other, one) == common
    assert shares(one, **keys)[:common] == shares(other, **keys)[:common]
    assert schedule.depends_on_length == (common == 3)
