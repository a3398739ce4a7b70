"""The state of a run, from what SLURM says of its jobs and what its directory tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from supertrainer.core.errors import INTERRUPTED, SAVED_NOT_REQUEUED
from supertrainer.launch.jobs import JobState
from supertrainer.launch.marks import Marks, log_verdict

State = Literal[
    "none",
    "queued",
    "running",
    "requeued",  # in the queue again after a start
    "saved",  # stopped at a checkpoint; somebody must start it
    "finished",
    "failed",
    "cancelled",
    "timed out",
    "out of memory",
    "node failed",
    "lost",  # started or queued once; now nobody knows it, and it left no mark of its end
]
_OF_SLURM: Mapping[str, State] = {
    "BOOT_FAIL": "node failed",
    "CANCELLED": "cancelled",
    "DEADLINE": "timed out",
    "NODE_FAIL": "node failed",
    "OUT_OF_MEMORY": "out of memory",
    "PREEMPTED": "cancelled",  # and not put back into the queue
    "REVOKED": "cancelled",
    "TIMEOUT": "timed out",
}


def governing_job(marks: Marks, states: Mapping[str, JobState]) -> JobState | None:
    """The job that says how the run is: one that runs, else one that waits, else the last one that SLURM knows."""
    known = [states[job_id] for job_id in marks.job_ids if job_id in states]
    live = [state for state in known if state.is_live]
    if live:
        return next((state for state in live if not state.is_waiting), live[0])
    if marks.local or not known or not last_job_known(marks, states):
        return None  # a later start, here or in a job that SLURM has forgotten, counts more
    started = [state for state in known if state.job_id in marks.jobs.started]
    return started[-1] if started and marks.outcome == "done" else known[-1]


def run_state(marks: Marks, job: JobState | None, *, answers: bool) -> tuple[State, str]:
    """The state and its reason.

    Args:
        job: the one that `governing_job` chose.
        answers: whether SLURM could be asked, so that a job it doesn't know is over.
    """
    if job is not None and job.is_live:
        if not job.is_waiting:
            return "running", job.reason
        if marks.outcome == "done" and marks.jobs.started & set(marks.jobs.chain):
            return "finished", ""  # what is left of a chain ends as soon as it starts
        again = job.job_id in marks.jobs.started or bool(job.restarts)
        return ("requeued" if again else "queued"), job.reason
    if job is None and marks.held_by is not None:
        return "running", "" if marks.held_by else "outside of SLURM"
    if marks.outcome == "done" or (marks.finished and not marks.attempts):
        return "finished", ""
    if job is not None:
        return _ended(marks, job)
    return _from_marks(marks, answers=answers)


def _ended(marks: Marks, job: JobState) -> tuple[State, str]:
    """How the run is after its last job ended, as SLURM tells."""
    code = job.exit_code or 0
    how = f"exit code {code}" if code else f"signal {job.signal}" if job.signal else ""
    if job.state == "COMPLETED":
        return _of_exit_code(marks, 0)
    if job.state == "PREEMPTED" and marks.outcome_of_last_start == "saved":
        return "saved", _how_to_go_on(marks)
    if job.state in _OF_SLURM:
        words = "preempted and not requeued" if job.state == "PREEMPTED" else job.reason
        if job.job_id not in marks.jobs.started and job.state == "CANCELLED" and not job.elapsed_seconds:
            words = words or "before it started"
        return _OF_SLURM[job.state], words
    if job.state in ("FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL"):
        if code in (SAVED_NOT_REQUEUED, INTERRUPTED) or marks.outcome_of_last_start == "saved":
            return "saved", _how_to_go_on(marks)
        if log_verdict(marks) == "out of memory":  # sites without cgroups' own state for it
            return "out of memory", how
        return "failed", how or job.reason
    return "failed", job.state  # a word that this SLURM has and this program doesn't know


def _from_marks(marks: Marks, *, answers: bool) -> tuple[State, str]:
    """How the run is where SLURM doesn't know its last job, or it had none."""
    jobs = marks.jobs
    if not marks.job_ids or marks.local:
        by_outcome: Mapping[str, State] = {"": "none", "failed": "failed", "killed": "lost"}
        state = by_outcome.get(marks.outcome, "saved")
        return state, _how_to_go_on(marks) if state == "saved" else ""
    last = marks.job_ids[-1] if not jobs.started else [job_id for job_id in jobs.ids if job_id in jobs.started][-1]
    if jobs.ids and jobs.ids[-1] not in jobs.started:
        if not answers:
            return "lost", "SLURM's controller doesn't answer"
        return "cancelled", f"job {jobs.ids[-1]} never started, and SLURM no longer knows it"
    code = jobs.ended.get(last) if jobs.ended else None
    if code == 0 and jobs.requeued:
        return "saved", _how_to_go_on(marks)  # it was in the queue again, and is no longer
    verdict = log_verdict(marks)
    if code == 0 and verdict == "cancelled":
        return "cancelled", "by its log"  # it saved, and ended with 0
    if code is not None:
        return _of_exit_code(marks, code)
    for state in ("timed out", "out of memory", "node failed", "cancelled"):
        if verdict == state:
            return state, "by its log"
    if marks.outcome_of_last_start in ("saved", "interrupted"):
        return "saved", _how_to_go_on(marks)
    if marks.outcome_of_last_start == "failed":
        return "failed", ""
    return "lost", "" if answers else "SLURM's controller doesn't answer"


def _of_exit_code(marks: Marks, code: int) -> tuple[State, str]:
    if marks.outcome_of_last_start in ("saved", "interrupted") or code in (SAVED_NOT_REQUEUED, INTERRUPTED):
        return "saved", _how_to_go_on(marks)
    if code == 0 and marks.finished and marks.outcome_of_last_start not in ("failed", "killed"):
        return "finished", ""  # a start that only showed the report
    if code == 0 and not marks.outcome_of_last_start:
        return "saved", _how_to_go_on(marks)  # it was stopped before it began
    return "failed", f"exit code {code}" if code else ""


def _how_to_go_on(marks: Marks) -> str:
    return f"sbatch {marks.run.slurm_sh} goes on" if marks.run.slurm_sh.exists() else "start it again to go on"


def last_job_known(marks: Marks, states: Mapping[str, JobState]) -> bool:
    """Whether SLURM still knows the run's newest job."""
    return bool(marks.job_ids) and marks.job_ids[-1] in states
