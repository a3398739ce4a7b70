"""What a run directory itself tells of a run: jobs, attempts, progress, log. Any of its files may be absent."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from supertrainer.config.secrets import redact
from supertrainer.core.attempts import Attempt, read_attempts
from supertrainer.core.lock import STALE_SECONDS
from supertrainer.core.owner import owner_from_fields, process_state, this_process
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory

_TAIL_BYTES = 1 << 16
_LAST_WORDS = 20  # lines: the output of all restarts of a job is in one file
# SLURM's own words in a job's output, and the state that they stand for; the first that matches holds.
_VERDICTS = (
    (re.compile(r"DUE TO TIME LIMIT"), "timed out"),
    (re.compile(r"oom[-_ ]kill|exceeded memory limit", re.IGNORECASE), "out of memory"),
    (re.compile(r"DUE TO NODE FAILURE"), "node failed"),
    (re.compile(r"JOB \d+ ON \S+ CANCELLED AT \S+ (?:DUE TO PREEMPTION )?\*\*\*"), "cancelled"),
)
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]: *|\d+: *)?[A-Za-z_][\w.]*(?<!ChildFailed)(?:Error|Exception|Interrupt)\b(?::|$)"
)
_COMPLAINT = re.compile(r"\berror\b|\bfatal\b|Segmentation fault|Killed|Aborted|command not found", re.IGNORECASE)


@dataclass(frozen=True)
class Jobs:
    """What jobs.jsonl tells. Jobs are in the order in which they were submitted or started.

    Attributes:
        started: jobs whose script began.
        chain: the jobs of the newest submit.
        ended: job -> the exit code of its last start, None while that start has no end.
        requeued: whether the script's last act was to requeue its job.
        last_time: of the newest line.
        limit_seconds: that the newest submit asked for.
        log: that the newest submit named.
        last_start: when the newest start began.
        last_end: when it ended.
    """

    ids: tuple[str, ...] = ()
    started: frozenset[str] = frozenset()
    ended: Mapping[str, int | None] = field(default_factory=dict)
    chain: tuple[str, ...] = ()
    requeued: bool = False
    last_time: float = 0.0
    limit_seconds: int | None = None
    log: Path | None = None
    last_start: float | None = None
    last_end: float | None = None


@dataclass(frozen=True)
class Marks:
    """Everything that a run directory tells.

    Attributes:
        local: whether the newest start was outside of SLURM.
        held_by: the job id of the live process that holds the lock, empty text for a process without a job; None: no
            live one.
        finished: whether there is a report of the whole run.
    """

    run: RunDirectory
    jobs: Jobs
    attempts: tuple[Attempt, ...]
    local: bool
    held_by: str | None
    finished: bool
    step: int | None
    planned_steps: int | None
    loss: float | None
    log: Path | None
    log_age_seconds: float | None

    @property
    def outcome(self) -> str:
        """How the newest attempt ended; empty without one."""
        return self.attempts[-1].outcome if self.attempts else ""

    @property
    def outcome_of_last_start(self) -> str:
        """The same, but empty where the newest start of a job ended before it became an attempt."""
        became = bool(self.attempts) and _seconds(self.attempts[-1].started) >= (self.jobs.last_start or 0.0)
        return self.outcome if became else ""

    @property
    def job_ids(self) -> tuple[str, ...]:
        """Every job of the run, oldest first."""
        of_attempts = [attempt.job_id for attempt in self.attempts if attempt.job_id]
        return tuple(dict.fromkeys(self.jobs.ids or of_attempts))


def read_marks(run: RunDirectory) -> Marks:
    """Reads a run directory."""
    jobs = _read_jobs(run)
    attempts = tuple(read_attempts(run))
    local = bool(attempts) and not attempts[-1].job_id and _seconds(attempts[-1].started) >= jobs.last_time
    step, loss = _progress(run)
    log = _newest_log(run, jobs)
    return Marks(
        run=run,
        jobs=jobs,
        attempts=attempts,
        local=local,
        held_by=_live_holder(run),
        finished=_json(run.report_json).get("status") == "finished",
        step=step if step is not None else next((a.step for a in reversed(attempts) if a.step is not None), None),
        planned_steps=next((a.planned_steps for a in reversed(attempts) if a.planned_steps is not None), None),
        loss=loss,
        log=log,
        log_age_seconds=max(time.time() - log.stat().st_mtime, 0.0) if log is not None else None,
    )


def last_error(marks: Marks) -> str:
    """Why the run isn't well, in one line without secrets: what the program wrote, else what its output ends with."""
    if marks.outcome_of_last_start == "failed":
        return redact(marks.attempts[-1].reason)
    lines = _tail(marks.log)
    patterns = [(pattern, lines[-_LAST_WORDS:]) for pattern, _ in _VERDICTS[:3]]
    for pattern, among in [*patterns, (_EXCEPTION, lines), (_COMPLAINT, lines)]:
        found = [line.strip() for line in among if pattern.search(line)]
        if found:
            return redact(found[-1])[:300]
    return ""


def log_verdict(marks: Marks) -> str:
    """The state that SLURM's last words in the job's output stand for; empty where there are none."""
    lines = _tail(marks.log)[-_LAST_WORDS:]
    return next((state for pattern, state in _VERDICTS if any(pattern.search(line) for line in lines)), "")


def _read_jobs(run: RunDirectory) -> Jobs:
    ids: dict[str, None] = {}
    started: set[str] = set()
    ended: dict[str, int | None] = {}
    chain: Sequence[str] = ()
    requeued, last_time = False, 0.0
    last_start = last_end = limit = log = None
    for row in read_records(run.jobs_jsonl).rows:
        job_id, event, moment = str(row.get("job_id", "")), row.get("event"), _seconds(row.get("time"))
        ids.setdefault(job_id)
        last_time = max(last_time, moment)
        if event == "submit":
            limit, log, chain = row.get("limit_seconds"), row.get("log"), row.get("chain", [job_id])
        elif event == "start":
            started.add(job_id)
            ended[job_id], requeued, last_start, last_end = None, False, moment, None
        elif event == "end":
            ended[job_id], requeued, last_end = row.get("exit_code"), bool(row.get("requeued")), moment
    return Jobs(
        ids=tuple(ids),
        started=frozenset(started),
        chain=tuple(map(str, chain)),
        ended=ended,
        requeued=requeued,
        last_time=last_time,
        limit_seconds=limit,
        log=Path(log) if log else None,
        last_start=last_start,
        last_end=last_end,
    )


def _progress(run: RunDirectory) -> tuple[int | None, float | None]:
    """The step that was written last, and the loss that was."""
    step = loss = None
    for line in reversed(_tail(run.metrics_jsonl)):
        try:
            row = json.loads(line)
        except ValueError:
            continue  # torn, or cut by where the tail begins
        if not isinstance(row, dict):
            continue
        if step is None and isinstance(row.get("step"), int):
            step = row["step"]
        if isinstance(row.get("loss"), int | float):
            return step, float(row["loss"])
    return step, loss


def _newest_log(run: RunDirectory, jobs: Jobs) -> Path | None:
    logs = [path for path in run.logs.glob("slurm-*.out") if path.is_file()]
    logs += [path for path in (jobs.log, run.logs / "run.log") if not logs and path is not None and path.is_file()][:1]
    return max(logs, key=lambda path: path.stat().st_mtime, default=None)


def _live_holder(run: RunDirectory) -> str | None:
    owner = owner_from_fields(_json(run.lock_json))
    if owner is None:
        return None
    process = process_state(owner, seen_from=this_process())
    if process == "unknown":
        try:
            fresh = time.time() - run.lock_json.stat().st_mtime < STALE_SECONDS
        except OSError:
            return None
        return owner.job_id if fresh else None
    return None if process == "gone" else owner.job_id


def _tail(path: Path | None) -> Sequence[str]:
    if path is None:
        return []
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, 2) - _TAIL_BYTES, 0))
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _seconds(text: object) -> float:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return 0.0
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
