"""Killed and started again equals never killed, to the bit; longer equals extended, to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from supertrainer.core.errors import ConfigError
from supertrainer.core.records import last_per_step, read_records
from supertrainer.trainers.base import TaskTrainer
from tiny_models import save_tiny
from tiny_training import killed_after, tiny_trainer, weights

# Dropout everywhere: a random state that isn't carried over shows in every weight.
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.1}
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.2}
EVERY_STEP = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "epoch"}


def state(run: Path, step: int) -> dict[str, Any]:
    """Optimizer, scheduler and random states of a checkpoint."""
    folder = run / "checkpoints" / f"step-{step:08d}"
    names = ("optimizer.pt", "scheduler.pt", "rng_state.pth")
    found = {name: torch.load(folder / name, weights_only=False) for name in names}
    # Nothing in training reads Python's own generator; a package that is imported late may.
    del found["rng_state.pth"]["python"]
    return found


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool((one == other).all()) if hasattr(one, "all") else one == other


def start(run: Path, source: Path, **keys: Any) -> Any:
    kwargs = {**EVERY_STEP, **keys.pop("training_kwargs", {})}
    return tiny_trainer(run, source, training_kwargs=kwargs, config_overrides=DROPOUT, keep_last=100, **keys).train()


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
def test_a_run_killed_at_any_step_equals_one_never_killed(tmp_path: Path, peft_kwargs: dict[str, Any] | None) -> None:
    source = save_tiny(tmp_path / "source")
    whole = tmp_path / "whole"
    start(whole, source, peft_kwargs=peft_kwargs)
    expected = weights(whole)
    for step in range(1, 6):  # 3 is the end of an epoch, 1, 2, 4 and 5 are in the middle of one
        run = killed_after(whole, step, tmp_path / f"killed-{step}")
        result = start(run, source, peft_kwargs=peft_kwargs, attempt=2)
        assert (result.first_step, result.step, result.stopped_by) == (step, 6, None)
        assert equal(weights(run), expected)
        assert equal(state(run, 6), state(whole, 6))


def test_a_second_resume_equals_too(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    whole = tmp_path / "whole"
    kwargs = {"num_train_epochs": 3}
    start(whole, source, training_kwargs=kwargs)
    first = killed_after(whole, 2, tmp_path / "first")
    start(first, source, training_kwargs=kwargs, attempt=2)
    second = killed_after(first, 5, tmp_path / "second")
    start(second, source, training_kwargs=kwargs, attempt=3)
    assert equal(weights(second), weights(whole))
    assert equal(state(second, 9), state(whole, 9))


@pytest.mark.parametrize("schedule", [{"lr_scheduler_type": "linear"}, {"lr_scheduler_type": "cosine", "optim": "sgd"}])
def test_schedules_go_on_where_they_were(tmp_path: Path, schedule: dict[str, Any]) -> None:
    source = save_tiny(tmp_path / "source")
    whole = tmp_path / "whole"
    start(whole, source, training_kwargs=schedule)
    run = killed_after(whole, 4, tmp_path / "killed")
    start(run, source, training_kwargs=schedule, attempt=2)
    assert equal(weights(run), weights(whole))


def test_the_metrics_of_a_killed_run_equal_those_of_one_never_killed(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    whole = tmp_path / "whole"
    start(whole, source)
    run = killed_after(whole, 4, tmp_path / "killed")
    start(run, source, attempt=2)
    measured = ("attempt", "tokens_per_second", "peak_memory_gib")
    rows = [
        [{key: value for key, value in row.items() if key not in measured} for row in last_per_step(records.rows)]
        for records in (read_records(whole / "metrics.jsonl"), read_records(run / "metrics.jsonl"))
    ]
    assert rows[0] == rows[1]
    assert [row["step"] for row in rows[0]] == [1, 2, 3, 4, 5, 6]
    assert {row["step"] for row in rows[0] if "eval_loss" in row} == {3, 6}


@pytest.mark.parametrize("length", [{"num_train_epochs": 1}, {"num_train_epochs": 1.34}, {"max_steps": 2}])
def test_an_extended_run_equals_the_longer_one(tmp_path: Path, length: dict[str, Any]) -> None:
    source = save_tiny(tmp_path / "source")
    start(tmp_path / "long", source, training_kwargs={"num_train_epochs": 2})
    first = start(tmp_path / "run", source, training_kwargs=length)
    assert first.step < 6
    second = start(tmp_path / "run", source, training_kwargs={"num_train_epochs": 2}, attempt=2)
    assert (second.first_step, second.step) == (first.step, 6)
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "long"))
    assert equal(state(tmp_path / "run", 6), state(tmp_path / "long", 6))


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    first = start(tmp_path / "run", source)
    expected = weights(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    again = start(tmp_path / "run", source, attempt=2)
    assert (again.first_step, again.step, again.rows_per_second) == (6, 6, None)
    assert (again.selected_step, again.metrics) == (first.selected_step, first.metrics)
    assert equal(weights(tmp_path / "run"), expected)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_run_cannot_be_made_shorter(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    start(tmp_path / "run", source, training_kwargs={"max_steps": 4})
    with pytest.raises(ConfigError, match=r"(?s)step-00000004 is beyond the 2 steps.*longer, not shorter"):
        start(tmp_path / "run", source, training_kwargs={"max_steps": 2}, attempt=2)


def test_the_best_weights_survive_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best step lies before the kill: a resume that forgets it would choose another."""
    source = save_tiny(tmp_path / "source")
    accuracy = iter([0.5, 0.7, 0.9, 0.6, 0.8, 0.7, 0.6, 0.8, 0.7])
    monkeypatch.setattr(TaskTrainer, "evaluate", lambda self, module, rows, batch_size: {"accuracy": next(accuracy)})
    kwargs = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "no"}
    keys = {"select": "best", "main": "accuracy", "keep_last": 9, "training_kwargs": kwargs}
    checkpoints = tmp_path / "run" / "checkpoints"

    def kept() -> list[int]:
        return sorted(int(folder.name.removeprefix("step-")) for folder in checkpoints.glob("step-*"))

    first = tiny_trainer(tmp_path / "run", source, **keys).train()
    assert (first.selected_step, first.metrics) == (3, {"accuracy": 0.9})
    assert kept() == [1, 2, 3, 6]  # each best so far, and the last
    expected = weights(tmp_path / "run")
    assert equal(expected, load_file(checkpoints / "step-00000003" / "model.safetensors"))
    shutil.rmtree(checkpoints / "step-00000006")
    shutil.rmtree(tmp_path / "run" / "model")
    again = tiny_trainer(tmp_path / "run", source, attempt=2, **keys).train()
    assert (again.first_step, again.selected_step) == (3, 3)
    assert kept() == [1, 2, 3, 6]  # 0.6 at step 4 is the best of this attempt, not of the run
    assert equal(weights(tmp_path / "run"), expected)


def test_the_best_outlives_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = iter([0.5, 0.9, 0.6, 0.8, 0.7, 0.7])
    monkeypatch.setattr(TaskTrainer, "evaluate", lambda self, module, rows, batch_size: {"accuracy": next(accuracy)})
    kwargs = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1}
    keys = {"select": "best", "main": "accuracy", "keep_last": 1, "training_kwargs": kwargs}
    result = tiny_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), **keys).train()
    assert result.selected_step == 2
    kept = sorted(folder.name for folder in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert kept == ["step-00000002", "step-00000006"]
