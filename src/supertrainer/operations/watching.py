"""Runs in SLURM, watched until they have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.status import RunStatus, run_statuses


def watch(runs: Sequence[RunDirectory], *, poll_seconds: float, stream: TextIO) -> list[RunStatus]:
    """Prints a line whenever a run gets on, until all have ended; returns how they did."""
    shown: dict[str, str] = {}
    while True:
        statuses = run_statuses(runs)
        for status in statuses:
            line = progress_line(status)
            if shown.get(status.run) != line:
                print(f"{time.strftime('%H:%M:%S')} {line}", file=stream, flush=True)
                shown[status.run] = line
        if not any(status.is_live for status in statuses):
            return statuses
        time.sleep(poll_seconds)


def progress_line(status: RunStatus) -> str:
    """A run's state, how far it is, and what went wrong, in one line."""
    words = [status.run, status.state]
    words += [f"({status.reason})"] if status.reason and status.is_live else []
    if status.step is not None:
        words.append(f"step {status.step}" + (f" of {status.planned_steps}" if status.planned_steps else ""))
    words += [f"loss {status.loss:.4f}"] if status.loss is not None else []
    words += [f": {status.error}"] if status.error and not status.is_live and status.state != "finished" else []
    return " ".join(words)
