"""A sweep's checked runs, sent to SLURM: at once, in arrays where resources are equal, and watched if asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.errors import INTERRUPTED
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.status import run_statuses
from supertrainer.launch.sweep import PlannedRun
from supertrainer.launch.table import aligned
from supertrainer.operations.before_submit import check_configs, needs_fetching
from supertrainer.operations.submission import (
    Submission,
    groups_of,
    prepare,
    queue,
    queue_array,
)
from supertrainer.operations.watching import watch


def queue_runs(
    runs: Sequence[PlannedRun],
    *,
    directory: Path,
    record: Callable[[Mapping[str, Any]], None],
    check: bool | None,
    wait: bool,
    poll_seconds: float,
) -> list[int | None]:
    """Queues the runs of a sweep and prints their job ids.

    Args:
        directory: of the sweep.
        record: called with a row per queued run: index, name, overrides, job_id.
        check: whether each is checked on its data and model first; None: only where something comes from the Hub,
            which jobs don't reach.
        wait: whether to stay until every run has ended.
        poll_seconds: between two looks at SLURM.

    Returns:
        Exit codes, in order; None for a run that is queued and was not waited for.

    Raises:
        ConfigError: what the check found. Nothing is queued then.
        LaunchError: SLURM refused some; those that were queued before are named.
    """
    configs = [run.config for run in runs]
    fetch = needs_fetching(configs) if check is None else check
    commits: Sequence[Mapping[str, str]] = check_configs(configs, stream=sys.stdout) if fetch else [{}] * len(runs)
    sources = [run.command.source for run in runs]
    submissions = prepare(configs, sources=sources, commits=commits, offline=fetch or not needs_fetching(configs))
    queued = {submission.run.path: submission for submission in submissions}
    try:
        for group in groups_of(submissions):
            sent = [queue(group[0])] if len(group) == 1 else queue_array(group, directory=directory)
            queued |= {submission.run.path: submission for submission in sent}
    finally:
        submissions = [queued[submission.run.path] for submission in submissions]
        _record(runs, submissions, record)
        print("\n" + _table(runs, submissions), flush=True)
    directories = [submission.run for submission in submissions]
    if wait:
        return _wait(directories, directory=directory, poll_seconds=poll_seconds)
    print(f"\nFollow them: python scripts/submit.py status {directory}\nStop them:   {_stop(directory)}", flush=True)
    return [0 if submission.state == "finished" else None for submission in submissions]


def _wait(runs: Sequence[RunDirectory], *, directory: Path, poll_seconds: float) -> list[int | None]:
    try:
        statuses = watch(runs, poll_seconds=poll_seconds, stream=sys.stdout)
    except KeyboardInterrupt:
        going_on = sum(status.is_live for status in run_statuses(runs))
        print(
            f"\nInterrupted: {going_on} of {len(runs)} runs go on in SLURM. Stop them: {_stop(directory)}", flush=True
        )
        return [INTERRUPTED] * len(runs)
    return [0 if status.state == "finished" else 1 for status in statuses]


def _record(
    runs: Sequence[PlannedRun], submissions: Sequence[Submission], record: Callable[[Mapping[str, Any]], None]
) -> None:
    for run, submission in zip(runs, submissions, strict=True):
        if submission.state == "queued":
            row = {"index": run.index, "name": submission.run.name, "overrides": list(run.swept)}
            record(row | {"job_ids": list(submission.job_ids)})


def _table(runs: Sequence[PlannedRun], submissions: Sequence[Submission]) -> str:
    rows = [
        (" ".join(run.swept), str(there.run.path), ", ".join(there.job_ids) or "-", there.state)
        for run, there in zip(runs, submissions, strict=True)
    ]
    return aligned([("overrides", "run", "job", "state"), *rows])


def _stop(directory: Path) -> str:
    return f"python scripts/submit.py cancel {directory}"
