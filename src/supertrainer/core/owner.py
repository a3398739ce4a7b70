"""Who a process is, in terms that another process on any machine can check."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from supertrainer.core.job import job_id, job_restart
from supertrainer.core.records import utc_now

_TOKEN = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Owner:
    """A process that holds, or wants, a lock. Empty text and 0 mean unknown.

    `pid_start_time` is in clock ticks since boot: a later process with the same pid has another. `job_restart` counts
    SLURM's requeues, which keep the job id.
    """

    token: str
    host: str = ""
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    pid_start_time: int = 0
    job_id: str = ""
    job_restart: int = 0
    started: str = ""

    def __str__(self) -> str:
        process = f"process {self.pid} on {self.host}" if self.pid else "an unknown process"
        job = f" (SLURM job {self.job_id})" if self.job_id else ""
        return f"{process}{job}" + (f" since {self.started}" if self.started else "")


def this_process() -> Owner:
    """The calling process, with a new random token of 32 hexadecimal digits."""
    pid = os.getpid()
    return Owner(
        token=uuid.uuid4().hex,
        host=socket.gethostname(),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        pid=pid,
        pid_start_time=_stat(pid)[1],
        job_id=job_id(),
        job_restart=job_restart(),
        started=utc_now(),
    )


def owner_from_fields(fields: object) -> Owner | None:
    """The owner that a lock file's JSON describes; None where it isn't one of ours (cut off, edited, foreign)."""
    if not isinstance(fields, dict) or not _TOKEN.fullmatch(str(fields.get("token"))):
        return None
    known = {field.name: field.type for field in dataclasses.fields(Owner)}
    values = {name: value for name, value in fields.items() if name in known}
    wanted = {"str": str, "int": int}
    if any(type(value) is not wanted[str(known[name])] for name, value in values.items()):
        return None
    return Owner(**values)


def process_state(owner: Owner, *, seen_from: Owner) -> Literal["alive", "dying", "gone", "unknown"]:
    """Whether an owner's process still runs; unknown where it can't be told from the process `seen_from`.

    Only the same host, boot and pid namespace share pids. A zombie is gone: it can't write any more. A dying one is
    killed but not gone yet: a process that frees many gigabytes takes seconds.
    """
    there = (owner.host, owner.boot_id, owner.pid_namespace)
    if there != (seen_from.host, seen_from.boot_id, seen_from.pid_namespace) or not 0 < owner.pid < 2**31:
        return "unknown"
    killed = _kill_pending(owner.pid)  # before the rest is read: what is pending now shows as exiting later
    state, start_time, exiting = _stat(owner.pid)
    if not start_time or not owner.pid_start_time:  # no /proc here, or it hides other users' processes
        return "unknown" if _pid_exists(owner.pid) else "gone"
    if start_time != owner.pid_start_time or state in {"Z", "X"}:
        return "gone"
    return "dying" if exiting or killed else "alive"


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # another user's
    return True


def _stat(pid: int) -> tuple[str, int, bool]:
    """State letter, start time and whether it is exiting, from /proc/PID/stat; ("", 0, False) if unreadable."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()  # the name before it may hold spaces
    if len(fields) < 20:
        return "", 0, False
    return fields[0], int(fields[19]), bool(int(fields[6]) & 0x4)  # PF_EXITING in the kernel's sched.h


def _kill_pending(pid: int) -> bool:
    masks = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)$", _text(f"/proc/{pid}/status"), re.MULTILINE)
    return any(int(mask, 16) & 1 << (signal.SIGKILL - 1) for mask in masks)


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
