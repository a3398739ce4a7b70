"""Each start of a run and how it ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from supertrainer.core.attempts import end_attempt, read_attempts, start_attempt
from supertrainer.core.run_directory import RunDirectory


def test_attempts_count_up_and_one_without_an_end_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory(tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert start_attempt(run, command=["main.py", "+experiment=train_bert"]) == 1
    assert start_attempt(run, command=["main.py"], processes=2, resumed_step=400) == 2
    end_attempt(run, number=2, outcome="failed", step=450, reason="ValueError: no")
    assert start_attempt(run, command=["main.py"], resumed_step=400) == 3
    end_attempt(run, number=3, outcome="done", step=500)

    killed, failed, done = read_attempts(run)
    assert (killed.number, killed.outcome, killed.ended, killed.step) == (1, "killed", None, None)
    assert killed.command == ("main.py", "+experiment=train_bert")
    assert (killed.host, killed.pid, killed.job_id) == (socket.gethostname(), os.getpid(), "77")
    assert (failed.outcome, failed.step, failed.reason) == ("failed", 450, "ValueError: no")
    assert (failed.processes, failed.resumed_step) == (2, 400)
    assert (done.outcome, done.step, done.reason) == ("done", 500, "")
    assert done.started.endswith("+00:00")


def test_a_start_that_was_torn_off_counts_for_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    start_attempt(run, command=["main.py"])
    with run.attempts_jsonl.open("ab") as file:
        file.write(b'{"event": "start", "attem')
    assert start_attempt(run, command=["main.py"]) == 2
    assert [attempt.number for attempt in read_attempts(run)] == [1, 2]


def test_a_run_that_was_never_started_has_no_attempts(tmp_path: Path) -> None:
    assert read_attempts(RunDirectory(tmp_path)) == []
