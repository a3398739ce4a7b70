"""What SLURM knows of jobs: squeue, then scontrol, then sacct. Each may be absent, and each forgets."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from supertrainer.core.errors import LaunchError
from supertrainer.launch.slurm import controller_answers, has_slurm, slurm

log = logging.getLogger(__name__)

ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
    )
)
WAITING = frozenset(("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"))
_JOB_ID = re.compile(r"(\d+)(?:_(\d+))?")
_MOST_AT_ONCE = 200  # job ids on one command line
_FIELDS = ("JobID", "JobArrayID", "State", "Reason", "NodeList", "TimeUsed", "TimeLimit", "exit_code", "RestartCnt")
_SACCT_FIELDS = ("JobIDRaw", "JobID", "State", "Reason", "NodeList", "ElapsedRaw", "TimelimitRaw", "ExitCode", "Submit")


@dataclass(frozen=True)
class JobState:
    """A job as SLURM sees it. None and empty text: the program that was asked doesn't tell.

    Attributes:
        job_id: as scancel takes it: `12`, or `12_3` for a task of an array.
        state: SLURM's long word, such as PENDING.
        exit_code: of a job that ended.
        signal: that ended the job.
        restarts: how often it was put back into the queue.
    """

    job_id: str
    state: str
    reason: str
    nodes: str
    elapsed_seconds: int | None
    limit_seconds: int | None
    exit_code: int | None
    signal: int | None
    restarts: int | None
    source: Literal["squeue", "scontrol", "sacct"]

    @property
    def is_live(self) -> bool:
        """Queued, running or about to be queued again: it may still change."""
        return self.state not in ENDED

    @property
    def is_waiting(self) -> bool:
        """In the queue: it holds no nodes now."""
        return self.state in WAITING


class _Row(NamedTuple):
    raw_id: str  # SLURM_JOB_ID inside the job; pending tasks of an array share one
    state: JobState


def job_states(job_ids: Iterable[str]) -> dict[str, JobState]:
    """Asks for many jobs at once; those that nobody knows are absent.

    Args:
        job_ids: `12`, `12_3`, or what SLURM_JOB_ID is inside a task of an array.
    """
    found: dict[str, JobState] = {}
    wanted = [job_id for job_id in dict.fromkeys(job_ids) if _JOB_ID.fullmatch(job_id)]
    for look_up in (_squeue, _scontrol, _sacct):
        missing = [job_id for job_id in wanted if job_id not in found]
        for start in range(0, len(missing), _MOST_AT_ONCE):
            part = missing[start : start + _MOST_AT_ONCE]
            rows = list(look_up(part))
            found |= {job_id: state for job_id in part if (state := _state_of(job_id, rows)) is not None}
    return {job_id: found[job_id] for job_id in wanted if job_id in found}


def jobs_of_scripts(scripts: Iterable[Path]) -> dict[Path, list[str]]:
    """This user's jobs in the queue that were made from these scripts, also those whose submit was never answered."""
    wanted = {str(script): script for script in scripts}
    found: dict[Path, list[str]] = {}
    for line in _answer("squeue", "--me", "--noheader", "--array", "--Format", "JobArrayID:|,Command:|").splitlines():
        job_id, _, command = line.rstrip("|").partition("|")
        if command.strip() in wanted:
            found.setdefault(wanted[command.strip()], []).append(job_id.strip())
    return found


def is_running(job_id: str) -> bool | None:
    """Whether a job's processes may run now; False once it ended or waits again; None where nobody knows it."""
    state = job_states([job_id]).get(job_id) if has_slurm() else None
    return None if state is None else state.is_live and not state.is_waiting


def cancel(job_ids: Iterable[str]) -> dict[str, str]:
    """Cancels jobs; harmless when they ended before. A task of an array is cancelled alone.

    Returns:
        What became of each: "cancelled", "had ended (STATE)" or "unknown".

    Raises:
        LaunchError: SLURM can't be asked, or doesn't let this user cancel one.
    """
    asked = list(dict.fromkeys(job_ids))
    before = job_states(asked)
    if len(before) < len(asked) and not controller_answers():
        slurm("scontrol", "ping")  # says that the program isn't here
        raise LaunchError(
            "SLURM's controller doesn't answer.", why="nothing was cancelled.", fix="try again in a few minutes."
        )
    live = {job_id: state.job_id for job_id, state in before.items() if state.is_live}
    if live:
        try:
            slurm("scancel", *dict.fromkeys(live.values()))
        except LaunchError:  # one may have ended meanwhile
            if any(state.is_live and state.state != "COMPLETING" for state in job_states(live).values()):
                raise

    def outcome(job_id: str) -> str:
        if job_id in live:
            return "cancelled"
        return f"had ended ({before[job_id].state})" if job_id in before else "unknown"

    return {job_id: outcome(job_id) for job_id in asked}


def seconds_of(text: str) -> int | None:
    """SLURM's [DAYS-][HOURS:]MINUTES:SECONDS in seconds; None for UNLIMITED and other words."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _state_of(job_id: str, rows: Sequence[_Row]) -> JobState | None:
    """The asked job among rows, the newest last. An array's own id is also that of its last task."""
    exact = [row.state for row in rows if row.state.job_id == job_id]
    if exact:
        return exact[-1]
    own = [row.state for row in rows if row.raw_id == job_id]
    if len({state.job_id for state in own}) == 1:
        return own[-1]
    tasks = own or [row.state for row in rows if row.state.job_id.partition("_")[0] == job_id]
    if not tasks:
        return None

    def urgency(state: JobState) -> int:  # the whole array runs if one task does, and failed if one did
        return (0 if not state.is_waiting else 1) if state.is_live else 3 if state.state == "COMPLETED" else 2

    return replace(min(tasks, key=urgency), job_id=job_id)


def _squeue(job_ids: Sequence[str]) -> Iterator[_Row]:
    form = ",".join(f"{field}:|" for field in _FIELDS)
    arguments = ("--noheader", "--all", "--array", "--states=all", "--jobs", ",".join(job_ids), "--Format", form)
    for line in _answer("squeue", *arguments).splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < len(_FIELDS):
            continue  # a cluster's name, in a federation
        raw_id, job_id, state, reason, nodes, used, limit, ended, restarts = cells[: len(_FIELDS)]
        code, signal = _ending(ended)
        yield _Row(
            raw_id,
            JobState(
                job_id=job_id,
                state=state,
                reason=_word(reason),
                nodes=_word(nodes),
                elapsed_seconds=seconds_of(used),
                limit_seconds=seconds_of(limit),
                exit_code=code if state in ENDED else None,
                signal=signal if state in ENDED else None,
                restarts=int(restarts) if restarts.isdecimal() else None,
                source="squeue",
            ),
        )


def _scontrol(job_ids: Sequence[str]) -> Iterator[_Row]:
    for asked in job_ids:
        try:
            text = slurm("scontrol", "show", "job", asked)
        except LaunchError as error:
            if "Invalid job id" in str(error) or "not found" in str(error) or "exit code" in str(error):
                continue
            log.debug("%s", error)
            return  # no controller: the others would only wait for it in vain
        for record in re.split(r"\n\s*\n", text):
            # Of the first line only its start: the job's name is the user's, and may look like any field.
            head = re.match(r"JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?", record)
            line = re.search(r"^ +JobState=(\S+) Reason=(.*?)(?: Dependency=.*)?$", record, re.MULTILINE)
            if head is None or line is None:
                continue
            raw_id, array, tasks = head.groups()
            code, signal = _ending(_field(record, "ExitCode"))
            state, restarts = line.group(1), _field(record, "Restarts")
            for job_id in [f"{array}_{task}" for task in _tasks(tasks)] if array else [raw_id]:
                yield _Row(
                    raw_id,
                    JobState(
                        job_id=job_id,
                        state=state,
                        reason=_word(line.group(2)),
                        nodes=_word(_field(record, "NodeList")),
                        elapsed_seconds=seconds_of(_field(record, "RunTime")),
                        limit_seconds=seconds_of(_field(record, "TimeLimit")),
                        exit_code=code if state in ENDED else None,
                        signal=signal if state in ENDED else None,
                        restarts=int(restarts) if restarts.isdecimal() else None,
                        source="scontrol",
                    ),
                )


def _sacct(job_ids: Sequence[str]) -> Iterator[_Row]:
    form = ",".join(_SACCT_FIELDS)
    arguments = ("-X", "-D", "--noheader", "--parsable2", "--jobs", ",".join(job_ids), "--format", form)
    lines = [line.split("|") for line in _answer("sacct", *arguments).splitlines()]
    lines = [cells for cells in lines if len(cells) == len(_SACCT_FIELDS)]
    starts: dict[str, int] = {}
    for cells in sorted(lines, key=lambda cells: cells[-1]):  # a requeued job has a row per start
        raw_id, shown, state, reason, nodes, elapsed, limit, ended, _ = cells
        starts[raw_id] = starts.get(raw_id, -1) + 1
        array, _, tasks = shown.partition("_[")
        code, signal = _ending(ended)
        word = state.split()[0]  # CANCELLED by 1000
        for job_id in [f"{array}_{task}" for task in _tasks(tasks.rstrip("]"))] if tasks else [shown]:
            yield _Row(
                raw_id,
                JobState(
                    job_id=job_id,
                    state=word,
                    reason="" if word in ENDED else _word(reason),  # of an ended job: why it once waited
                    nodes=_word(nodes),
                    elapsed_seconds=int(elapsed) if elapsed.isdecimal() else None,
                    limit_seconds=int(limit) * 60 if limit.isdecimal() else None,
                    exit_code=code if word in ENDED else None,
                    signal=signal if word in ENDED else None,
                    restarts=starts[raw_id],
                    source="sacct",
                ),
            )


def _answer(program: str, *arguments: str) -> str:
    """What a program says, nothing where it can't: it is absent, has no server, or knows none of the jobs."""
    try:
        return slurm(program, *arguments)
    except LaunchError as error:
        log.debug("%s", error)
        return ""


def _field(record: str, name: str) -> str:
    match = re.search(rf"^ +(?:.* )?{name}=(\S*)", record, re.MULTILINE)
    return match.group(1) if match else ""


def _word(text: str) -> str:
    return "" if text in {"None", "(null)", "N/A", "None assigned"} else text


def _ending(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal, from CODE:SIGNAL or from the status that the system call wait gives."""
    code, colon, signal = text.partition(":")
    if not code.isdecimal() or (colon and not signal.isdecimal()):
        return None, None
    return (int(code), int(signal) or None) if colon else (int(code) >> 8, int(code) & 0x7F or None)


def _tasks(text: str) -> list[int]:
    """The task numbers of `2-3%2`, `1,5-7` or `0-8:4`."""
    numbers: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if match:
            first, last, step = match.groups()
            numbers += range(int(first), int(last or first) + 1, int(step or 1))
    return numbers
