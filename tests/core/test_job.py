"""What a process knows of its SLURM job, and what a signal does to it."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from supertrainer.core.job import (
    STOP_SIGNALS,
    StopRequested,
    ask_for_requeue,
    has_waiting_script,
    job_id,
    job_restart,
    signals_held,
    stop_on_signals,
)
from supertrainer.core.run_directory import RunDirectory


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_task_of_an_array_is_named_so_that_cancelling_it_spares_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)
    assert (job_id(), job_restart()) == ("", 0)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert job_id() == "12"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "12")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert (job_id(), job_restart()) == ("12_3", 2)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_in_a_job_a_signal_ends_the_program_in_an_orderly_way(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, handlers: None
) -> None:
    monkeypatch.setenv("SUPERTRAINER_JOB", "12")
    stop_on_signals()
    with pytest.raises(StopRequested) as raised:
        signal.raise_signal(number)
    assert raised.value.signal == number.name
    assert not isinstance(raised.value, Exception)  # what catches every Exception must not catch it
    signal.raise_signal(signal.SIGTERM)  # the second one is ignored while the first ends the program


def test_signals_wait_though_another_thread_can_take_them(monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    monkeypatch.setenv("SUPERTRAINER_JOB", "12")
    stop_on_signals()
    done: list[str] = []
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)  # as a lock's heartbeat: it has started before, and blocks no signal
    other.start()

    def begin() -> None:
        with signals_held():
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.1)
            done.append("whole")

    try:
        with pytest.raises(StopRequested, match="SIGUSR1"):
            begin()
    finally:
        ended.set()
        other.join()
    assert done


def test_outside_of_a_job_signals_stay_as_they_were(monkeypatch: pytest.MonkeyPatch, handlers: None) -> None:
    monkeypatch.delenv("SUPERTRAINER_JOB", raising=False)
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    stop_on_signals()
    assert not has_waiting_script()
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_requeue_json_says_which_start_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    ask_for_requeue(RunDirectory(tmp_path), reason="SIGUSR1", step=7)
    asked = json.loads((tmp_path / "requeue-12.json").read_text())
    assert asked == {"job_id": "12", "restart": 1, "step": 7, "reason": "SIGUSR1"}
