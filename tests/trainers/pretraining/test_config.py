"""What the pretraining trainer's config refuses, and what belongs to a run's identity."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from supertrainer.core.placement import Placement, planned
from supertrainer.trainers.schema import PretrainTrainerConfig

KEYS: dict[str, Any] = {
    "_target_": "x",
    "global_batch_size": 12,
    "sequence_length": 16,
    "max_steps": 10,
    "learning_rate": 1e-3,
}


def whole(mode: str = "full") -> Any:
    """What the rules read of the whole config."""
    return SimpleNamespace(operation="train", model=SimpleNamespace(max_length=64), run=SimpleNamespace(mode=mode))


def config(**keys: Any) -> PretrainTrainerConfig:
    return PretrainTrainerConfig.model_validate({**KEYS, **keys}, strict=False)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"schedule": {"name": "wsd"}}, "wsd without decay_steps"),
        ({"schedule": {"name": "constant", "decay_steps": 3}}, "a constant rate doesn't decay"),
        ({"schedule": {"final_share": 1.5}}, "less than or equal to 1"),
        ({"micro_batch_size": 5}, "trainer.micro_batch_size=5 × 1 processes does not divide"),
        ({"parallel": {"strategy": "ddp", "replicas": 2}}, "only fsdp has groups"),
        ({"learning_rate": 0.0}, "greater than 0"),
        ({"betas": (0.9, 1.0)}, "less than 1"),
        ({"max_steps": 0}, "greater than 0"),
        ({"warmup_steps": 3}, "Extra inputs"),
    ],
)
def test_a_config_that_cannot_work_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config(**keys)


@pytest.mark.parametrize(
    ("keys", "there", "message"),
    [
        ({}, Placement(5, has_gpu=True), "5 processes do not divide trainer.global_batch_size=12"),
        ({"micro_batch_size": 4}, Placement(2, has_gpu=True), "trainer.micro_batch_size=2 or 3 or 6"),
        ({"precision": "bfloat16"}, Placement(1, has_gpu=False), "precision=bfloat16 without a GPU"),
        ({"parallel": {"strategy": "none"}}, Placement(2, has_gpu=True), "each would train by itself"),
        ({"parallel": {"replicas": 2}}, Placement(3, has_gpu=True), "replicas=2 with 3 processes"),
        ({"parallel": {"replicas": 2}}, Placement(2, has_gpu=True), "strategy=ddp is a group per process"),
        ({"sequence_length": 128}, Placement(1, has_gpu=True), "model.max_length=64"),
        ({"schedule": {"warmup_steps": 8, "decay_steps": 3}}, Placement(1, has_gpu=True), "max_steps=11 or more"),
        ({"schedule": {"warmup_steps": 11}}, Placement(1, has_gpu=True), "warmup_steps=11 + decay_steps=0"),
    ],
)
def test_a_place_that_cannot_train_it_is_refused_with_the_way_out(
    keys: dict[str, Any], there: Placement, message: str
) -> None:
    with planned(there):
        found = [str(problem) for problem in config(**keys).rules(whole())]
    assert len(found) == 1
    assert message in found[0]


def test_a_place_that_can_is_not() -> None:
    with planned(Placement(4, has_gpu=False)):
        assert list(config(micro_batch_size=3, parallel={"replicas": 2}).rules(whole())) == []
        slow = config(precision="bfloat16", allow_bfloat16_on_cpu=True)
        assert list(slow.rules(whole())) == []


def test_a_mode_that_shortens_a_run_needs_no_other_schedule() -> None:
    with planned(Placement(1, has_gpu=False)):
        assert list(config(schedule={"warmup_steps": 1000}).rules(whole(mode="toy"))) == []


@pytest.mark.parametrize(
    ("schedule", "dependent"),
    [
        ({"name": "cosine"}, "schedule.name=cosine"),
        ({"name": "linear", "decay_steps": 5}, None),
        ({"name": "wsd", "decay_steps": 5}, None),
        ({"name": "constant"}, None),
    ],
)
def test_a_run_is_extendable_unless_its_rates_depend_on_its_length(schedule: dict[str, Any], dependent: str) -> None:
    assert config(schedule=schedule).schedule_by_length()[0] == dependent
