"""The check of splits: silent where a step is one mean, loud where it is a mean of means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from supertrainer.core.errors import LaunchError
from supertrainer.operations.verification import splitting, workbench
from supertrainer.operations.verification.rows import Row
from supertrainer.operations.verification.splitting import check_own_optimizer, check_splits
from supertrainer.operations.verification.workbench import apart
from supertrainer.trainers.losses import StepLoss
from tiny_verification import LORA, tiny_workbench

NF4 = "trainer/common/bitsandbytes_kwargs@trainer.bitsandbytes_kwargs=nf4"


def split_rows(place: Path, *words: str) -> list[Row]:
    bench = tiny_workbench(place, *words)
    with bench.trained("reference", bench.sgd) as whole:
        return list(check_splits(bench, whole))


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two processes fail at once: patches of this process don't reach them."""

    def fail(*args: Any, **kwargs: Any) -> None:
        raise LaunchError("process 1 of 2 ended with exit code 1: no")

    monkeypatch.setattr(workbench, "train_apart", fail)


@pytest.mark.parametrize("words", [[], [LORA], ["trainer.training_kwargs.max_grad_norm=0.01"]])
def test_splits_of_the_shipped_trainer_hold(words: list[str], no_processes: None, tmp_path: Path) -> None:
    rows = split_rows(tmp_path, *words)
    assert [row.verdict for row in rows] == ["holds", "holds", "BREAKS"]
    assert all(row.value is not None and 0 <= row.value < 1e-5 for row in rows[:2])


def test_a_mean_of_micro_batch_means_breaks(
    no_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the last step's three rows the halves have two and one, which would weigh the same."""

    def averaged(self: Any, outputs: Any, labels: Tensor, *, num_items_in_batch: Any) -> Tensor:
        total = self._objective.summed(outputs.logits, labels)
        self._running.append(total.detach())
        self._labels = num_items_in_batch
        return total / max(int((labels != -100).sum()), 1) / 2

    monkeypatch.setattr(StepLoss, "__call__", averaged)
    rows = split_rows(tmp_path)
    assert [row.verdict for row in rows] == ["BREAKS", "BREAKS", "BREAKS"]
    assert rows[0].value is not None
    assert rows[0].value > 0.01


def favour_last_rows(monkeypatch: pytest.MonkeyPatch, *, share: float) -> None:
    """Makes the last row of every micro-batch count that much more: of one row in four, or of each."""
    exact = StepLoss.__call__

    def biased(self: Any, outputs: Any, labels: Tensor, *, num_items_in_batch: Any) -> Tensor:
        more = self._objective.summed(outputs.logits[-1:], labels[-1:]) * share
        return exact(self, outputs, labels, num_items_in_batch=num_items_in_batch) + more / num_items_in_batch

    monkeypatch.setattr(StepLoss, "__call__", biased)


def test_a_fault_of_one_in_a_thousand_breaks(
    no_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    favour_last_rows(monkeypatch, share=1e-3)
    rows = split_rows(tmp_path)[:2]
    assert [row.verdict for row in rows] == ["BREAKS", "BREAKS"]
    assert all(row.value is not None and 1e-4 < row.value < 2e-3 for row in rows)


@pytest.mark.parametrize("words", [[], [LORA, NF4]])
def test_what_float32_rounds_further_than_the_bound_is_held_in_float64(
    words: list[str], no_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tiny model rounds so far, so the bound comes nearer; float64 takes the weights that 4 bits stand for."""
    monkeypatch.setattr(splitting, "BOUND", 1e-12)
    monkeypatch.setattr(splitting, "EXACT", 1e-12)
    rows = split_rows(tmp_path, *words)[:2]
    assert [(row.verdict, row.bound) for row in rows] == [("holds", "≤ 1e-03")] * 2
    assert all("by rounding alone: in float64 it is" in row.why for row in rows)


@pytest.mark.parametrize("words", [[], [LORA, NF4]])
def test_a_fault_as_small_as_rounding_breaks_in_float64(
    words: list[str], no_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "BOUND", 1e-12)
    favour_last_rows(monkeypatch, share=1e-6)
    rows = split_rows(tmp_path, *words)[:2]
    assert [row.verdict for row in rows] == ["BREAKS", "BREAKS"]
    assert all("it isn't rounding: in float64 it is" in row.why for row in rows)


def test_a_model_that_float64_cannot_go_through_breaks_with_the_reason(
    no_processes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splitting, "BOUND", 1e-12)
    exact = StepLoss.__call__

    def single(self: Any, outputs: Any, labels: Tensor, **kwargs: Any) -> Tensor:
        if outputs.logits.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'\nsee below")
        return exact(self, outputs, labels, **kwargs)

    monkeypatch.setattr(StepLoss, "__call__", single)
    row = split_rows(tmp_path)[0]
    assert row.verdict == "BREAKS"
    assert row.why == "float64 can't show whether it is rounding: not implemented for 'Double'"


@pytest.mark.slow  # starts two processes twice
def test_two_processes_train_in_float64_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "BOUND", 1e-12)
    monkeypatch.setattr(splitting, "EXACT", 1e-12)
    row = split_rows(tmp_path, LORA)[-1]
    assert row.check.startswith("split: the same over 2 processes")
    assert (row.verdict, row.bound) == ("holds", "≤ 1e-03")


def test_processes_that_fail_break_the_check_with_their_last_word(no_processes: None, tmp_path: Path) -> None:
    row = split_rows(tmp_path)[-1]
    assert (row.verdict, row.why) == ("BREAKS", "process 1 of 2 ended with exit code 1: no")


@pytest.mark.parametrize(("optimizer", "why"), [("adamw_torch", "divides a gradient by its size"), ("sgd", "")])
def test_the_own_optimizer_is_measured_and_not_promised(optimizer: str, why: str, tmp_path: Path) -> None:
    bench = tiny_workbench(tmp_path, f"trainer.training_kwargs.optim={optimizer}")
    rows = list(check_own_optimizer(bench))
    assert [row.verdict for row in rows] == (["measured"] if why else [])
    assert all(why in row.why and row.bound == "" for row in rows)


def test_the_noise_of_float32_is_no_break_where_a_model_hardly_moves() -> None:
    """A model that has learnt its rows has gradients near zero."""
    start = {"weight": torch.full((1_000_000,), 0.1)}  # 100 long
    step = {"weight": start["weight"] + 1e-6}  # 0.001 further
    other = {"weight": step["weight"].clone()}
    other["weight"][:10_000] += 1e-8  # the last bit of one in a hundred
    assert apart(other, step, start=start) < 1e-5
    assert apart({"weight": start["weight"] + 2e-6}, step, start=start) > 1e-3
    assert math.isnan(apart(start, start, start=start))  # nothing was trained, so nothing was checked
