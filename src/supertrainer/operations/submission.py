"""From validated configs to queued jobs: run directories, their scripts, sbatch. No torch."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from supertrainer import __version__
from supertrainer.config.spine import Config
from supertrainer.core.files import write_atomic
from supertrainer.core.records import append_record, read_records, utc_now
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.code import code_directory, copy_code
from supertrainer.launch.jobs import job_states, jobs_of_scripts
from supertrainer.launch.script import Job, render_array, render_script
from supertrainer.launch.slurm import submit_script
from supertrainer.operations.hub_commits import record_commits
from supertrainer.operations.opening import find_run
from supertrainer.operations.snapshot import write_snapshot

State = Literal["to queue", "queued", "already queued", "finished"]


@dataclass(frozen=True)
class Submission:
    """A run on its way into the queue.

    Attributes:
        config: of the run.
        run: its directory.
        job: what its script is made from.
        state: `to queue` before sbatch; `already queued` and `finished` runs are not sent again.
        job_ids: of its job, or of the jobs of its chain.
    """

    config: Config
    run: RunDirectory
    job: Job
    state: State
    job_ids: tuple[str, ...] = ()


def planned_job(config: Config, run: RunDirectory, *, offline: bool = False) -> Job:
    """What the script of a run is made from."""
    allowed = ",".join(config.allow_targets)
    return Job(
        run=run.path.resolve(),
        name=config.cluster.slurm.job_name or run.name,
        cluster=config.cluster,
        code=code_directory(Path(config.run.root)),
        python=config.cluster.slurm.python or sys.executable,
        working_directory=Path.cwd(),
        words=(f"allow_targets=[{allowed}]",) if allowed else (),
        offline=offline,
    )


def prepare(
    configs: Sequence[Config],
    *,
    sources: Sequence[Path | None],
    commits: Sequence[Mapping[str, str]],
    offline: bool,
) -> list[Submission]:
    """Makes the run directories with their snapshots and scripts; a run that is queued or finished is left alone.

    Args:
        sources: the file or run directory that each config was read from.
        commits: of each config, node -> the commit that was fetched from the Hub.
        offline: whether everything was fetched, so that the jobs need no Hub.

    Raises:
        ConfigError: a directory holds another run.
        LaunchError: something can't be written.
    """
    for root in {Path(config.run.root) for config in configs}:
        copy_code(root)
    found = [find_run(config, source=source) for config, source in zip(configs, sources, strict=True)]
    live = _live_jobs([run for run, _ in found])
    submissions = []
    for config, fetched, (run, finished) in zip(configs, commits, found, strict=True):
        job = planned_job(config, run, offline=offline)
        if finished or run.path in live:
            state: State = "finished" if finished else "already queued"
            submissions.append(Submission(config, run, job, state, live.get(run.path, ())))
            continue
        write_snapshot(run, config)
        record_commits(run, config, commits=fetched)
        run.logs.mkdir(exist_ok=True)
        write_atomic(run.slurm_sh, render_script(job))
        run.slurm_sh.chmod(0o755)
        submissions.append(Submission(config, run, job, "to queue"))
    return submissions


def queue(submission: Submission) -> Submission:
    """Sends one run: a job, or as many as `cluster.chain` says, each after the one before."""
    if submission.state != "to queue":
        return submission
    links = submission.config.cluster.chain
    ids: list[str] = []
    for link in range(links):
        options = [f"--dependency=afterany:{ids[-1]}"] if ids else []
        arguments = [str(links - 1 - link)] if links > 1 else []
        ids.append(submit_script(submission.run.slurm_sh, *arguments, options=options))
    for job_id in ids:
        _record(submission, job_id=job_id, chain=ids, log=submission.run.logs / f"slurm-{job_id}.out")
    return replace(submission, state="queued", job_ids=tuple(ids))


def queue_array(submissions: Sequence[Submission], *, directory: Path) -> list[Submission]:
    """Sends runs with equal resources as one array.

    Args:
        directory: of the sweep; the array's script and its tasks' links to the runs' logs go there, or into the next
            free directory in it: an earlier array may still run, and its requeued tasks go on in their own logs.
    """
    sweep = directory.resolve()
    places = itertools.chain([sweep], (sweep / f"{sweep.name}-{number}" for number in itertools.count(2)))
    directory = next(place for place in places if not (place / "array.sh").exists())
    for index, submission in enumerate(submissions):
        link = directory / "tasks" / str(index)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(submission.run.logs.resolve())
    script = directory / "array.sh"
    write_atomic(script, render_array([submission.job for submission in submissions], directory=directory))
    script.chmod(0o755)
    array_id = submit_script(script)
    queued = []
    for index, submission in enumerate(submissions):
        job_id = f"{array_id}_{index}"
        _record(submission, job_id=job_id, chain=[job_id], log=submission.run.logs / f"slurm-{job_id}.out")
        queued.append(replace(submission, state="queued", job_ids=(job_id,)))
    return queued


def groups_of(submissions: Sequence[Submission]) -> list[list[Submission]]:
    """The runs to queue, those with equal resources together; a chain is never part of an array."""
    groups: dict[str, list[Submission]] = {}
    for submission in submissions:
        if submission.state == "to queue":
            cluster = submission.config.cluster
            key = cluster.model_dump_json() if cluster.chain == 1 else str(submission.run.path)
            groups.setdefault(key, []).append(submission)
    return list(groups.values())


def _record(submission: Submission, *, job_id: str, chain: Sequence[str], log: Path) -> None:
    slurm = submission.config.cluster.slurm
    facts = {"partition": slurm.partition, "limit_seconds": slurm.timeout_min * 60}
    facts |= {"log": str(log.resolve()), "version": __version__}
    _append_submit(submission.run, job_id=job_id, chain=chain, facts=facts)


def _remember(run: RunDirectory, job_ids: Sequence[str]) -> None:
    """Records jobs of the run whose submit was never answered, so that they can be followed and cancelled."""
    known = {str(row.get("job_id")) for row in read_records(run.jobs_jsonl).rows}
    for job_id in job_ids:
        if job_id not in known:
            _append_submit(run, job_id=job_id, chain=job_ids, facts={})


def _append_submit(run: RunDirectory, *, job_id: str, chain: Sequence[str], facts: Mapping[str, object]) -> None:
    row = {"event": "submit", "time": utc_now(), "job_id": job_id, "chain": list(chain), **facts}
    append_record(run.jobs_jsonl, row, sync=True)


def _live_jobs(runs: Sequence[RunDirectory]) -> dict[Path, tuple[str, ...]]:
    """Of the runs that were submitted before, those whose jobs still wait or run."""
    known: dict[Path, list[str]] = {}
    sent = [run for run in runs if run.slurm_sh.is_file()]
    queued = jobs_of_scripts(run.slurm_sh.resolve() for run in sent) if sent else {}
    for run in sent:
        _remember(run, queued.get(run.slurm_sh.resolve(), ()))
        rows = read_records(run.jobs_jsonl).rows
        known[run.path] = list(dict.fromkeys(str(row["job_id"]) for row in rows if row.get("job_id")))
    every = [job for jobs in known.values() for job in jobs]
    states = job_states(every) if every else {}
    live = {path: tuple(job for job in jobs if job in states and states[job].is_live) for path, jobs in known.items()}
    return {path: jobs for path, jobs in live.items() if jobs}
