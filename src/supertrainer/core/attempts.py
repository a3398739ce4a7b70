"""attempts.jsonl: when a run was started, by which command, and how each start ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from supertrainer.core.job import job_id
from supertrainer.core.records import append_record, read_records, utc_now
from supertrainer.core.run_directory import RunDirectory

Outcome = Literal["done", "saved", "failed", "interrupted"]  # saved: stopped at a checkpoint, to be started again


@dataclass(frozen=True)
class Attempt:
    """One start of a run. Times are UTC in ISO form; an attempt that wrote no end was killed, or still runs."""

    number: int
    started: str
    command: tuple[str, ...]
    host: str
    pid: int
    job_id: str
    processes: int
    resumed_step: int | None
    planned_steps: int | None
    outcome: Outcome | Literal["killed"]
    ended: str | None
    step: int | None
    reason: str


def start_attempt(
    run: RunDirectory,
    *,
    command: Sequence[str],
    processes: int = 1,
    resumed_step: int | None = None,
) -> int:
    """Writes that a run was started and returns the attempt's number, from 1. Call on rank 0 with the lock held.

    Args:
        command: the command line as it may be shown, without secrets.
        processes: how many processes train together.
        resumed_step: the step of the checkpoint that it goes on from; None from the beginning.
    """
    number = max((row["attempt"] for row in read_records(run.attempts_jsonl).rows), default=0) + 1
    row = {
        "event": "start",
        "attempt": number,
        "time": utc_now(),
        "command": list(command),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "job_id": job_id(),
        "processes": processes,
        "resumed_step": resumed_step,
    }
    append_record(run.attempts_jsonl, row, sync=True)
    return number


def plan_attempt(run: RunDirectory, *, number: int, planned_steps: int) -> None:
    """Writes how many optimizer steps the whole run has, once an attempt knows it."""
    append_record(run.attempts_jsonl, {"event": "plan", "attempt": number, "planned_steps": planned_steps})


def end_attempt(run: RunDirectory, *, number: int, outcome: Outcome, step: int | None, reason: str = "") -> None:
    """Writes how an attempt ended: at which step, and why (the error's first line, the signal's name, or nothing)."""
    row = {"event": "end", "attempt": number, "time": utc_now(), "outcome": outcome, "step": step, "reason": reason}
    append_record(run.attempts_jsonl, row, sync=True)


def read_attempts(run: RunDirectory) -> list[Attempt]:
    """Every attempt, oldest first. One without an end counts as killed: a caller that runs it knows better."""
    rows = read_records(run.attempts_jsonl).rows
    ends = {row["attempt"]: row for row in rows if row["event"] == "end"}
    plans = {row["attempt"]: row["planned_steps"] for row in rows if row["event"] == "plan"}
    attempts = []
    for start in rows:
        if start["event"] == "start":
            end = ends.get(start["attempt"], {"outcome": "killed", "time": None, "step": None, "reason": ""})
            attempts.append(
                Attempt(
                    number=start["attempt"],
                    started=start["time"],
                    command=tuple(start["command"]),
                    host=start["host"],
                    pid=start["pid"],
                    job_id=start["job_id"],
                    processes=start["processes"],
                    resumed_step=start["resumed_step"],
                    planned_steps=plans.get(start["attempt"]),
                    outcome=end["outcome"],
                    ended=end["time"],
                    step=end["step"],
                    reason=end["reason"],
                )
            )
    return attempts
