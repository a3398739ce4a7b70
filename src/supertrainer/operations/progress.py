"""Jobs that start again and again without getting anywhere are stopped, with the reason."""

from __future__ import annotations

from supertrainer.core.attempts import read_attempts
from supertrainer.core.errors import LaunchError
from supertrainer.core.job import job_id, job_restart
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory


def require_progress(run: RunDirectory, *, newest_step: int | None, allowed: int) -> None:
    """Refuses a start that no person asked for, after `allowed` attempts that all went on from the same step.

    A job that SLURM restarted, and a later job of a chain, are such starts; `sbatch` by hand and a new submit are not.

    Args:
        newest_step: of the newest checkpoint; None without one.
        allowed: `cluster.max_attempts_without_progress`.

    Raises:
        LaunchError: with how the last of them ended.
    """
    jobs = _jobs_of_this_submit(run)
    if job_restart() == 0 and (not jobs or jobs[0] == job_id()):
        return
    attempts = [attempt for attempt in read_attempts(run) if attempt.job_id in (*jobs, job_id())]
    if not attempts:
        return
    last = attempts[-1]
    if job_restart() == 0 and last.outcome == "failed":
        raise LaunchError(
            f"{run.path}: the job before this one failed ({last.reason}).",
            why="a chain goes on after a preemption or a time limit, not after a failure.",
            fix=f"mend it, then sbatch {run.slurm_sh}.",
        )
    stuck = attempts[-allowed:]
    if len(stuck) == allowed and all(attempt.resumed_step == newest_step for attempt in stuck):
        ending = f"{last.outcome}{f', {last.reason}' if last.reason else ''}"
        raise LaunchError(
            f"{run.path}: {allowed} attempts in a row went on from {_step(newest_step)} and saved nothing further; "
            f"the last one ended so: {ending}.",
            why="it would be restarted for ever. cluster.max_attempts_without_progress says how often.",
            fix=f"see {run.logs}; save more often (trainer.training_kwargs.save_steps; of a pretraining "
            f"trainer.save_every), or mend what ends it; then sbatch {run.slurm_sh}.",
        )


def _jobs_of_this_submit(run: RunDirectory) -> list[str]:
    """The chain of jobs that this one was submitted with, in order."""
    for row in reversed(read_records(run.jobs_jsonl).rows):
        chain = row.get("chain", [row["job_id"]]) if row.get("event") == "submit" else []
        if job_id() in chain:
            return [str(job) for job in chain]
    return []


def _step(step: int | None) -> str:
    return "the beginning" if step is None else f"step {step}"
