"""slurm.sh, the script that a run becomes, and array.sh, which starts those of a sweep. No torch, no pickle.

A script is whole by itself: `sbatch RUN/slurm.sh` goes on with the run, by whoever and whenever.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supertrainer import __version__
from supertrainer.config.cluster import ClusterConfig
from supertrainer.core.errors import Problem
from supertrainer.launch.script_command import command_lines
from supertrainer.launch.script_directives import directive, log_pattern, resource_directives
from supertrainer.launch.script_ending import ending_lines
from supertrainer.launch.script_opening import opening_lines


@dataclass(frozen=True)
class Job:
    """What a script is written from.

    Attributes:
        run: the run directory, absolute.
        name: the job's name in SLURM.
        cluster: where it runs.
        code: directory that goes first on PYTHONPATH; holds supertrainer/main.py.
        python: the interpreter outside a container.
        working_directory: where relative paths of the config start.
        words: further words for main.py.
        offline: the Hub is off in the job: everything was fetched before.
    """

    run: Path
    name: str
    cluster: ClusterConfig
    code: Path
    python: str
    working_directory: Path
    words: tuple[str, ...] = ()
    offline: bool = False


def render_script(job: Job) -> str:
    """The text of a run's slurm.sh."""
    script = shlex.quote(str(job.run / "slurm.sh"))
    head = [
        "#!/bin/bash",
        f"# A job of the run {_one_line(job.run.name)}, written by supertrainer {__version__}.",
        f"#     sbatch {_one_line(script)}",
        "# starts it, and goes on from its newest checkpoint where it has begun; by hand too.",
        directive("job-name", job.cluster.slurm.job_name or job.name),
        directive("chdir", job.working_directory),
        directive("output", log_pattern(job.run / "logs", "slurm-%j.out")),
        directive("open-mode", "append", why="a requeued job goes on in its log"),
        *resource_directives(job.cluster),
    ]
    parts = (
        opening_lines(
            run=job.run,
            working_directory=job.working_directory,
            code=job.code,
            cluster=job.cluster,
            offline=job.offline,
        ),
        command_lines(
            cluster=job.cluster,
            python=job.python,
            main=job.code / "supertrainer" / "main.py",
            words=(f"config={job.run}", *job.words),
            mounts=(job.working_directory, job.run, job.code),
            workdir=job.working_directory,
        ),
        ending_lines(run=job.run, cluster=job.cluster),
    )
    return "\n".join([*head, *(line for part in parts for line in ("", *part))]) + "\n"


def render_array(jobs: Sequence[Job], *, directory: Path) -> str:
    """The text of a sweep's array.sh: task I starts the slurm.sh of run I.

    Args:
        jobs: the runs in order; all ask for the same resources.
        directory: the sweep's. Its `tasks/I` is a link to the logs of run I.
    """
    first = jobs[0]
    assert len({"\n".join(resource_directives(job.cluster)) for job in jobs}) == 1, "an array has one set of resources"
    limit = first.cluster.slurm.array_parallelism
    lines = [
        "#!/bin/bash",
        f"# The {len(jobs)} runs of the sweep {_one_line(directory.name)}, written by supertrainer {__version__}.",
        f"#     sbatch {_one_line(shlex.quote(str(directory / 'array.sh')))}",
        "# goes on with each of them; a finished run ends at once. One run alone: sbatch its own slurm.sh.",
        directive("job-name", first.cluster.slurm.job_name or directory.name),
        directive("chdir", first.working_directory),
        directive("array", f"0-{len(jobs) - 1}%{limit}", why=f"at most {limit} at a time"),
        directive(
            "output", log_pattern(directory / "tasks", "%a/slurm-%A_%a.out"), why="tasks/I links to run I's logs"
        ),
        directive("open-mode", "append", why="a requeued job goes on in its log"),
        *resource_directives(first.cluster),
        "",
        "scripts=(",
        *(f"    {shlex.quote(str(job.run / 'slurm.sh'))}" for job in jobs),
        ")",
        'exec bash "${scripts[SLURM_ARRAY_TASK_ID]}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def script_problems(job: Job) -> list[Problem]:
    """What no script can hold: paths that SLURM, PYTHONPATH or a container's mounts would read as something else."""
    return list(_script_problems(job))


def _script_problems(job: Job) -> Iterator[Problem]:
    paths = {"the run directory": job.run, "the working directory": job.working_directory, "the code's copy": job.code}
    for what, path in paths.items():
        if not path.is_absolute():
            yield Problem(f"{what} {str(path)!r} is relative.", why="a job starts elsewhere.", fix="give it in full.")
        if any(sign in str(path) for sign in "\n\r\0"):
            yield Problem(
                f"{what} {str(path)!r} holds a line break.",
                why="an #SBATCH line ends there.",
                fix="rename it, or choose another run.root.",
            )
    if "\\" in str(job.run):
        yield Problem(
            f"the run directory {str(job.run)!r} holds a backslash.",
            why="SLURM then takes no pattern in a log's name, so jobs would write into one another's.",
            fix="rename it, or choose another run.root.",
        )
    if ":" in str(job.code):
        yield Problem(
            f"the code's copy {str(job.code)!r} holds a colon.",
            why="PYTHONPATH is split there.",
            fix="choose another run.root.",
        )
    if job.cluster.container.name != "none":
        for what, path in paths.items():
            if any(sign in str(path) for sign in ",:"):
                yield Problem(
                    f"{what} {str(path)!r} holds a comma or a colon.",
                    why=f"{job.cluster.container.name} splits its mounts there.",
                    fix="rename it, or choose another place.",
                )
    for word in (job.name, job.python, *job.words):
        if "\0" in word or (word is job.name and any(sign in word for sign in "\n\r")):
            yield Problem(f"{word!r} holds what no script can.", why="it would end there.", fix="write it otherwise.")


def _one_line(text: str) -> str:
    """A text for a comment, which ends with its line."""
    return " ".join(text.splitlines())
