"""Restarts that lead nowhere are stopped; starts by hand never are."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.core.attempts import Outcome, end_attempt, start_attempt
from supertrainer.core.errors import LaunchError
from supertrainer.core.records import append_record
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.progress import require_progress


def in_job(monkeypatch: pytest.MonkeyPatch, job: str, *, restart: int) -> None:
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", job)
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(restart))


def attempt(run: RunDirectory, *, resumed: int | None, outcome: Outcome | None, reason: str = "") -> None:
    number = start_attempt(run, command=["main.py"], resumed_step=resumed)
    if outcome is not None:
        end_attempt(run, number=number, outcome=outcome, step=None, reason=reason)


def test_three_attempts_from_the_same_step_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    in_job(monkeypatch, "7", restart=0)
    attempt(run, resumed=None, outcome="saved", reason="SIGTERM")
    for _ in range(2):
        attempt(run, resumed=40, outcome=None)
    in_job(monkeypatch, "7", restart=3)
    require_progress(run, newest_step=40, allowed=3)  # the first of the three went on from the beginning
    attempt(run, resumed=40, outcome="failed", reason="RuntimeError: boom")
    with pytest.raises(LaunchError) as raised:
        require_progress(run, newest_step=40, allowed=3)
    assert "3 attempts in a row went on from step 40" in str(raised.value)
    assert "RuntimeError: boom" in str(raised.value)
    require_progress(run, newest_step=50, allowed=3)  # the last one saved something


def test_a_start_by_hand_is_never_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    in_job(monkeypatch, "7", restart=0)
    for _ in range(5):
        attempt(run, resumed=None, outcome="failed", reason="RuntimeError: boom")
    in_job(monkeypatch, "8", restart=0)
    require_progress(run, newest_step=None, allowed=3)
    monkeypatch.delenv("SLURM_JOB_ID")
    require_progress(run, newest_step=None, allowed=3)


def test_a_chain_goes_on_after_a_save_but_not_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    for job in ("7", "8"):
        append_record(run.jobs_jsonl, {"event": "submit", "job_id": job, "chain": ["7", "8"]})
    in_job(monkeypatch, "7", restart=0)
    attempt(run, resumed=None, outcome="saved", reason="SIGUSR1")
    in_job(monkeypatch, "8", restart=0)
    require_progress(run, newest_step=3, allowed=3)
    in_job(monkeypatch, "7", restart=0)
    attempt(run, resumed=3, outcome="failed", reason="ValueError: no")
    in_job(monkeypatch, "8", restart=0)
    with pytest.raises(LaunchError, match=r"the job before this one failed \(ValueError: no\)"):
        require_progress(run, newest_step=3, allowed=3)
