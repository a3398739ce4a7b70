"""How runs are: asked of SLURM where it answers, else read from the run directories' own marks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.config.secrets import redact
from supertrainer.core.errors import ConfigError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.jobs import JobState, job_states
from supertrainer.launch.marks import Marks, last_error, read_marks
from supertrainer.launch.run_state import State, governing_job, last_job_known, run_state
from supertrainer.launch.slurm import controller_answers
from supertrainer.launch.sweep_directory import is_sweep, read_sweep
from supertrainer.launch.table import aligned

_LIVE = ("queued", "running", "requeued")


@dataclass(frozen=True)
class RunStatus:
    """A run at one moment. None and empty text: not known, or there is none.

    Attributes:
        run: the directory.
        reason: why it waits, or how it ended, in SLURM's words or its own.
        job_ids: every job of the run, oldest first.
        attempts: how often it was started.
        nodes: of the job that runs, or ran last.
        elapsed_seconds: of the newest start.
        loss: the last one written.
        error: the last error in one line, without secrets.
    """

    run: str
    state: State
    reason: str
    job_ids: tuple[str, ...]
    attempts: int
    nodes: str
    elapsed_seconds: int | None
    limit_seconds: int | None
    step: int | None
    planned_steps: int | None
    loss: float | None
    log: str
    log_age_seconds: float | None
    error: str

    @property
    def is_live(self) -> bool:
        """Queued or running: it may still get on without anybody's help."""
        return self.state in _LIVE


def expand(paths: Iterable[str | Path]) -> list[RunDirectory]:
    """The runs behind run directories and sweep directories, each once.

    Raises:
        ConfigError: a path is neither.
    """
    runs: dict[Path, RunDirectory] = {}
    for path in map(Path, paths):
        if is_sweep(path):
            found = [swept.run.path for swept in read_sweep(path)]
        elif any(mark.exists() for mark in _marks_of_a_run(RunDirectory(path))):
            found = [path]
        else:
            raise ConfigError(
                f"{path} is no run directory and no sweep directory.",
                why="it doesn't exist." if not path.exists() else "it holds neither config.yaml nor sweep.yaml.",
                fix="give runs/NAME or sweeps/NAME, as the submit printed it.",
            )
        for run in found:
            runs.setdefault(run.resolve(), RunDirectory(run))
    return list(runs.values())


def run_statuses(runs: Sequence[RunDirectory]) -> list[RunStatus]:
    """How each run is, in order, with one round of questions to SLURM for all."""
    marks = [read_marks(run) for run in runs]
    asked = {job_id for mark in marks for job_id in mark.job_ids}
    states = job_states(asked) if asked else {}
    unsure = any(not last_job_known(mark, states) for mark in marks if mark.job_ids and not mark.finished)
    answers = controller_answers() if unsure else True
    return [_status(mark, states, answers=answers) for mark in marks]


def table(statuses: Sequence[RunStatus]) -> str:
    """A line per run, and a further one under each that has an error."""
    head = ("run", "state", "reason", "job", "starts", "node", "elapsed / limit", "step", "loss", "log age")
    lines = aligned([head, *map(_cells, statuses)]).splitlines()
    shown = lines[:1]
    for line, status in zip(lines[1:], statuses, strict=True):
        shown.append(line)
        if status.error:
            shown.append(f"    {status.error}" + (f"  ({status.log})" if status.log else ""))
    return "\n".join(shown)


def as_rows(statuses: Sequence[RunStatus]) -> list[dict[str, Any]]:
    """The same as plain data, for JSON."""
    return [{**dataclasses.asdict(status), "job_ids": list(status.job_ids)} for status in statuses]


def _status(marks: Marks, states: Mapping[str, JobState], *, answers: bool) -> RunStatus:
    job = governing_job(marks, states)
    state, reason = run_state(marks, job, answers=answers)
    wrong = state not in (*_LIVE, "none", "finished", "saved", "cancelled")
    error = last_error(marks) if wrong else _error_before(marks) if state in _LIVE else ""
    elapsed = job.elapsed_seconds if job is not None else _elapsed(marks)
    limit = job.limit_seconds if job is not None else None
    return RunStatus(
        run=str(marks.run.path),
        state=state,
        reason=redact(reason),
        job_ids=marks.job_ids,
        attempts=len(marks.attempts),
        nodes=job.nodes if job is not None else "",
        elapsed_seconds=elapsed,
        limit_seconds=limit if limit is not None or marks.local else marks.jobs.limit_seconds,
        step=marks.step,
        planned_steps=marks.planned_steps,
        loss=marks.loss,
        log=str(marks.log or ""),
        log_age_seconds=None if marks.log_age_seconds is None else round(marks.log_age_seconds, 1),
        error=error,
    )


def _error_before(marks: Marks) -> str:
    """Why the start before the one that runs, or is to come, failed; empty where it didn't."""
    ended = [attempt for attempt in marks.attempts if attempt.outcome != "killed"]
    recent = ended and ended[-1].number >= marks.attempts[-1].number - 1
    return redact(ended[-1].reason) if recent and ended[-1].outcome == "failed" else ""


def _elapsed(marks: Marks) -> int | None:
    start, end = marks.jobs.last_start, marks.jobs.last_end
    if start is None or marks.local:
        return None
    if end is None and marks.held_by is None:
        return None
    return round((end if end is not None else time.time()) - start)


def _marks_of_a_run(run: RunDirectory) -> tuple[Path, ...]:
    return run.config_yaml, run.config_json, run.attempts_jsonl, run.jobs_jsonl, run.slurm_sh, run.report_json


def _cells(status: RunStatus) -> tuple[str, ...]:
    jobs = (
        status.job_ids[-1] + (f" (+{len(status.job_ids) - 1})" if len(status.job_ids) > 1 else "")
        if status.job_ids
        else "-"
    )
    step = (
        "-" if status.step is None else f"{status.step}" + (f"/{status.planned_steps}" if status.planned_steps else "")
    )
    return (
        status.run,
        status.state,
        status.reason or "-",
        jobs,
        str(status.attempts),
        status.nodes or "-",
        f"{_clock(status.elapsed_seconds)} / {_clock(status.limit_seconds)}",
        step,
        "-" if status.loss is None else f"{status.loss:.4f}",
        _clock(status.log_age_seconds),
    )


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hour}:{minute:02}:{second:02}"
