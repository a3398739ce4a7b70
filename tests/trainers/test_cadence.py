"""When steps are logged, evaluated and saved: 10 steps, 4 an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import TrainingArguments

from supertrainer.trainers.cadence import Cadence


def cadence(tmp_path: Path, **kwargs: Any) -> Cadence:
    return Cadence(TrainingArguments(output_dir=str(tmp_path), **kwargs), steps_per_epoch=4, max_steps=10)


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"logging_strategy": "steps", "logging_steps": 3}, [3, 6, 9, 10]),
        ({"logging_strategy": "steps", "logging_steps": 3, "logging_first_step": True}, [1, 3, 6, 9, 10]),
        ({"logging_strategy": "steps", "logging_steps": 0.25}, [3, 6, 9, 10]),  # a quarter of 10, rounded up
        ({"logging_strategy": "epoch"}, [4, 8, 10]),
        ({"logging_strategy": "no"}, [10]),
    ],
)
def test_logging(tmp_path: Path, kwargs: dict[str, Any], expected: list[int]) -> None:
    plan = cadence(tmp_path, **kwargs)
    assert [step for step in range(1, 11) if plan.should_log(step)] == expected


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"eval_strategy": "no"}, []),
        ({"eval_strategy": "steps", "eval_steps": 4}, [4, 8, 10]),
        ({"eval_strategy": "steps", "eval_steps": 4, "eval_delay": 5}, [8, 10]),
        ({"eval_strategy": "steps", "logging_steps": 5}, [5, 10]),  # the library's own default of eval_steps
        ({"eval_strategy": "epoch"}, [4, 8, 10]),
        ({"eval_strategy": "epoch", "eval_delay": 2}, [8, 10]),
    ],
)
def test_evaluation(tmp_path: Path, kwargs: dict[str, Any], expected: list[int]) -> None:
    plan = cadence(tmp_path, **kwargs)
    assert [step for step in range(1, 11) if plan.should_evaluate(step)] == expected


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"save_strategy": "no"}, [10]),  # the last step always: a run without it couldn't be extended
        ({"save_strategy": "steps", "save_steps": 6}, [6, 10]),
        ({"save_strategy": "epoch"}, [4, 8, 10]),
    ],
)
def test_saving(tmp_path: Path, kwargs: dict[str, Any], expected: list[int]) -> None:
    plan = cadence(tmp_path, **kwargs)
    assert [step for step in range(1, 11) if plan.should_save(step)] == expected
