"""The check of resumes and seeds: silent on the shipped trainer, loud on whatever a resume forgets."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.data.batching import BatchPlan
from supertrainer.operations.verification import workbench
from supertrainer.operations.verification.resuming import check_resumes
from supertrainer.trainers import base
from supertrainer.trainers.hf import ExactTrainer
from tiny_verification import LORA, tiny_workbench

NAMES = ("first", "second", "same", "other")


def resume_verdicts(place: Path, *words: str) -> dict[str, str]:
    rows = list(check_resumes(tiny_workbench(place, *words)))
    return {name: row.verdict for name, row in zip(NAMES, rows, strict=True)}


HOLDS = dict.fromkeys(NAMES, "holds")


@pytest.mark.parametrize(
    "words",
    [
        [],
        [LORA],
        ["trainer.training_kwargs.eval_strategy=no", "trainer.training_kwargs.lr_scheduler_type=cosine"],
        ["trainer.training_kwargs.optim=adafactor", "trainer.batching=random", "trainer.select=best"],
    ],
)
def test_resumes_of_the_shipped_trainer_hold(words: list[str], tmp_path: Path) -> None:
    assert resume_verdicts(tmp_path, *words) == HOLDS
    assert list((tmp_path / "aside").iterdir()) == []  # every run is removed


def test_the_check_stops_in_both_epochs(tmp_path: Path) -> None:
    rows = list(check_resumes(tiny_workbench(tmp_path)))
    assert [row.check for row in rows[:2]] == [
        "resume: 6 steps = 2 + 4",
        "resume: stopped again in epoch 2, 2 + 2 + 2",
    ]


def test_a_forgotten_optimizer_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ExactTrainer, "_load_optimizer_and_scheduler", lambda self, checkpoint: None)
    assert resume_verdicts(tmp_path) == HOLDS | {"first": "BREAKS", "second": "BREAKS"}


def test_a_forgotten_random_state_breaks_by_the_config_s_own_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExactTrainer, "_load_rng_state", lambda self, checkpoint: None)
    assert resume_verdicts(tmp_path) == HOLDS | {"first": "BREAKS", "second": "BREAKS"}


def test_a_resume_that_counts_epochs_from_its_start_breaks_in_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_rows = BatchPlan.step_rows

    def counted(self: Any, epoch: int) -> Any:
        first = vars(self).setdefault("first", epoch)
        return step_rows(self, epoch - first)

    monkeypatch.setattr(BatchPlan, "step_rows", counted)
    assert resume_verdicts(tmp_path) == HOLDS | {"second": "BREAKS"}


def test_a_run_that_is_not_of_its_seed_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New weights that differ from start to start; what is resumed is read from files, and so still the same."""
    starts = itertools.count()
    build = base.TaskTrainer.build_module

    def unseeded(self: Any) -> Any:
        module = build(self)
        with torch.no_grad():
            module.get_parameter("classifier.bias").add_(next(starts))
        return module

    monkeypatch.setattr(base.TaskTrainer, "build_module", unseeded)
    assert resume_verdicts(tmp_path) == HOLDS | {"same": "BREAKS"}


def test_a_seed_without_effect_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = workbench.build_trainer
    monkeypatch.setattr(workbench, "build_trainer", lambda *args, seed=None, **kwargs: make(*args, **kwargs))
    assert resume_verdicts(tmp_path) == HOLDS | {"other": "BREAKS"}
