"""The SLURM job that this process runs in, as its environment tells it, and what the job's script is told in return."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from supertrainer.core.files import write_json
from supertrainer.core.run_directory import RunDirectory

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequested(BaseException):
    """A signal asks this process to end; what isn't saved yet will be done again. Like KeyboardInterrupt, no Exception.

    Attributes:
        signal: its name.
    """

    def __init__(self, signal_name: str) -> None:
        super().__init__(signal_name)
        self.signal = signal_name


def job_id() -> str:
    """The job's id as SLURM's commands take it, a task of an array as `ARRAY_INDEX`; empty outside of a job.

    A task's raw id won't do: that of the last task is the whole array's too, so cancelling it would cancel all.
    """
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID", ""), os.environ.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID", "")


def job_restart() -> int:
    """How often SLURM has requeued this job."""
    count = os.environ.get("SLURM_RESTART_COUNT", "0")
    return int(count) if count.isdecimal() else 0


def has_waiting_script() -> bool:
    """Whether a job script waits for this process, ready to requeue the job if `requeue-JOB.json` asks for it."""
    return os.environ.get("SUPERTRAINER_JOB", "") not in ("", "0")


def stop_on_signals() -> None:
    """Makes a signal that announces the job's end raise StopRequested, wherever the program is; only in a job.

    Training takes the signals itself while it runs: it has something to save first.
    """
    if has_waiting_script() and threading.current_thread() is threading.main_thread():
        for number in STOP_SIGNALS:
            signal.signal(number, _raise)


@contextmanager
def signals_held() -> Iterator[None]:
    """Inside, the signals wait: what is begun there is whole before StopRequested can be raised.

    By handlers, not by the thread's signal mask: a signal that one thread blocks is taken by another, and Python then
    runs its handler in the main thread all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # handlers run in the main thread only
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def ask_for_requeue(run: RunDirectory, *, reason: str, step: int | None = None) -> None:
    """Writes requeue-JOB.json: the script requeues the job once every process has ended with 0. Call on rank 0."""
    wish = {"job_id": job_id(), "restart": job_restart(), "step": step, "reason": reason}
    write_json(run.requeue_json(job_id()), wish)


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    for other in STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # a second one must not break off the clean end that the first began
    raise StopRequested(signal.Signals(number).name)
