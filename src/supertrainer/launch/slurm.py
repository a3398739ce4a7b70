"""The one place that starts SLURM's programs."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from supertrainer.core.errors import LaunchError

log = logging.getLogger(__name__)

_ANSWER_LOST = re.compile(r"timed out|did not answer|exit code (?:-|1[2-9]\d)", re.IGNORECASE)
# What a user exports for tables to look at must not change what is read here.
_DISPLAY = re.compile(r"(?:SQUEUE|SACCT|SINFO|SCONTROL|SACCTMGR)_|SLURM_TIME_FORMAT$")
# Inside a job these describe that job; sbatch and the job it queues would take them for their own.
_OF_A_JOB = re.compile(r"SLURM_|SLURMD_|SRUN_|PMI")
_ALWAYS_KEPT = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}
# Of sbatch's own variables only these, as sites' profiles set them; each counts where the config leaves its key open.
SBATCH_VARIABLES = ("partition", "account", "qos", "constraint", "reservation")


def has_slurm() -> bool:
    """Whether jobs can be queued from this machine: sbatch is on the PATH."""
    return shutil.which("sbatch") is not None


def slurm(
    program: str, *arguments: str, timeout_seconds: float = 60, environment: Mapping[str, str] | None = None
) -> str:
    """Runs one of SLURM's programs and returns what it wrote to stdout.

    Args:
        environment: its environment; None: this process's, without what changes the form of the output.

    Raises:
        LaunchError: it isn't on this machine, didn't answer in time, or failed.
    """
    command = [program, *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_seconds,
            env=dict(_plain(os.environ) if environment is None else environment),
            check=False,
        )
    except FileNotFoundError:
        raise LaunchError(
            f"{program} is not on this machine.",
            why="SLURM is asked through its own programs.",
            fix="run this on a login node of the cluster, or load its module; cluster=local needs no SLURM.",
        ) from None
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{program} did not answer within {timeout_seconds:g} s.",
            why="SLURM's controller or its database is busy or unreachable.",
            fix="try again in a few minutes; `scontrol ping` says whether the controller is there.",
        ) from None
    except OSError as error:
        raise LaunchError(f"{program} can't be started: {error}.") from error
    if done.returncode:
        raise LaunchError(f"{program}: {_complaint(done.stderr) or f'exit code {done.returncode}'}")
    return done.stdout


def submit_script(script: Path, *arguments: str, options: Sequence[str] = ()) -> str:
    """Queues a script and returns its job id.

    What the script's own #SBATCH lines say holds, not what SBATCH_… variables of the shell would make of them.

    Args:
        arguments: the script's own.
        options: for sbatch, over the script's #SBATCH lines.

    Raises:
        LaunchError: sbatch isn't here or refuses the job.
    """
    lines = script.read_text(encoding="utf-8", errors="replace").splitlines()
    given = {match.group(1) for line in lines if (match := re.match(r"#SBATCH\s+--([a-z-]+)", line))}
    environment = submission_environment(os.environ, given=given)
    try:
        answer = slurm("sbatch", "--parsable", *options, str(script), *arguments, environment=environment)
    except LaunchError as error:
        what = error.problems[0].what
        if not _ANSWER_LOST.search(what):
            raise
        raise LaunchError(
            what,
            why="SLURM's answer was lost: the job may be queued all the same.",
            fix="submit again once `scontrol ping` answers: a job of this run that is queued is then found, and not "
            "sent twice. `squeue --me` shows it, scancel ends it.",
        ) from error
    job_id = answer.strip().splitlines()[-1].partition(";")[0] if answer.strip() else ""  # ID;CLUSTER in a federation
    if not job_id.isdecimal():
        raise LaunchError(
            f"sbatch answered {answer.strip()!r} where a job id was expected.",
            why="the job may be queued, but can't be followed from here.",
            fix="look for it with `squeue --me`.",
        )
    return job_id


def submission_environment(environment: Mapping[str, str], *, given: Iterable[str]) -> dict[str, str]:
    """The variables that sbatch may see when it queues a script with the #SBATCH options `given`.

    Of SBATCH_… those of `SBATCH_VARIABLES`, where the script has no such line. From inside a job (an interactive one,
    say) the variables that describe that job are left out.
    """
    options = set(given)
    inside = "SLURM_JOB_ID" in environment
    kept = {}
    for name, value in _plain(environment).items():
        if inside and _OF_A_JOB.match(name) and name not in _ALWAYS_KEPT:
            continue
        if name.startswith("SBATCH_"):
            option = name.removeprefix("SBATCH_").lower()
            if option not in SBATCH_VARIABLES or option in options:
                log.warning("%s of this shell does not count: cluster.slurm says what is asked for.", name)
                continue
        kept[name] = value
    return kept


def controller_answers() -> bool:
    """Whether SLURM's controller can be asked now."""
    try:
        return "UP" in slurm("scontrol", "ping", timeout_seconds=20)
    except LaunchError:
        return False


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if not _DISPLAY.match(name)}
    # Times and errors in one form; an array's pending tasks listed in full, not cut off after 64 characters.
    return {**kept, "LC_ALL": environment.get("LC_ALL", "C.UTF-8"), "SLURM_BITSTR_LEN": "0"}


def _complaint(stderr: str) -> str:
    """What a program complained of, in one line; a second line often says what the first leaves out."""
    lines = [re.sub(r"^\w+: (?:error|fatal): ", "", line).strip() for line in stderr.splitlines() if line.strip()]
    return " ".join(dict.fromkeys(lines[:3]))
