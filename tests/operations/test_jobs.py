"""A run inside a job: a signal saves it for the next start, wherever it comes."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from supertrainer.core.attempts import read_attempts
from supertrainer.core.run_directory import RunDirectory
from tiny_runs import TINY
from zygote import Zygote

IN_A_JOB = {"SUPERTRAINER_JOB": "12", "SLURM_JOB_ID": "12"}


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_signal_in_training_saves_and_asks_for_a_requeue(place: Path, zygote: Zygote, number: signal.Signals) -> None:
    assert zygote.run([*TINY, "run.name=whole"], directory=place) == 0
    run = RunDirectory(place / "runs" / "job")
    code = zygote.run(
        [*TINY, "run.name=job"],
        directory=place,
        environment=IN_A_JOB,
        signal_number=number,
        kill_when=lambda: run.metrics_jsonl.exists() and len(run.metrics_jsonl.read_bytes().splitlines()) >= 4,
    )
    assert code == 0
    asked = json.loads(run.requeue_json("12").read_text())
    assert (asked["job_id"], asked["reason"]) == ("12", number.name)
    [attempt] = read_attempts(run)
    assert (attempt.outcome, attempt.step, attempt.reason) == ("saved", asked["step"], number.name)
    assert attempt.planned_steps is not None
    assert not run.model.exists()
    run.requeue_json("12").unlink()
    environment = {**IN_A_JOB, "SLURM_RESTART_COUNT": "1"}
    assert zygote.run([f"config={run.path}"], directory=place, environment=environment) == 0
    assert not run.requeue_json("12").exists()
    whole = place / "runs" / "whole" / "model" / "model.safetensors"
    assert (run.model / "model.safetensors").read_bytes() == whole.read_bytes()


def test_a_signal_before_training_ends_it_with_0_and_asks_for_a_requeue(place: Path, zygote: Zygote) -> None:
    run = RunDirectory(place / "runs" / "early")
    code = zygote.run(
        [*TINY, "run.name=early", "operation=check"], directory=place, environment=IN_A_JOB
    )  # nothing asks for a requeue unless a signal came
    assert code == 0
    assert not run.requeue_json("12").exists()
    assert zygote.run([*TINY, "run.name=early", "trainer.training_kwargs.num_train_epochs=1"], directory=place) == 0
    run.report_json.unlink()
    code = zygote.run(
        [f"config={run.path}"],
        directory=place,
        environment=IN_A_JOB,
        signal_number=signal.SIGUSR1,
        kill_when=lambda: len(read_attempts(run)) == 2,
    )
    assert code == 0
    assert json.loads(run.requeue_json("12").read_text())["reason"] == "SIGUSR1"
    assert read_attempts(run)[-1].outcome == "saved"
    assert zygote.run([f"config={run.path}"], directory=place) == 0
