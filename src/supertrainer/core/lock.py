"""One writer per run directory, on shared file systems too: a lock file with a heartbeat, no flock.

The file's modification time is the heartbeat. A lock whose process is gone is taken over by one contender only: it
makes a claim file named by the stale lock's token, sees that the lock still has this token, and renames its own lock
over it. A claim is a lock itself, so a contender that died holding one is taken over in the same way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

from supertrainer.core.errors import LaunchError
from supertrainer.core.files import create_exclusive, is_disk_full, json_text, write_atomic
from supertrainer.core.owner import Owner, owner_from_fields, process_state, this_process

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 15.0
STALE_SECONDS = 120.0
PATIENCE_SECONDS = 10.0  # a takeover by another contender takes no longer
DYING_SECONDS = 60.0  # a killed process gives back 4 GiB in about 2 s
_RANDOM = random.SystemRandom()  # the run's seeded generator is not for waiting
JobState = Callable[[str], bool | None]


class RunLock:
    """A held lock. A context manager: leaving it releases the lock. Made by `acquire_lock`."""

    def __init__(
        self, path: Path, *, owner: Owner, on_lost: Callable[[str], None] | None, heartbeat_seconds: float
    ) -> None:
        self.path = path
        self.owner = owner
        self.lost = ""
        self._on_lost = on_lost
        self._heartbeat_seconds = heartbeat_seconds
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="run-lock-heartbeat", daemon=True)
        self._thread.start()

    def raise_if_lost(self) -> None:
        """Call before a write that another owner of the run must not see.

        Raises:
            LaunchError: the lock was taken over or removed.
        """
        if self.lost:
            raise LaunchError(
                self.lost,
                why="another process may write this run now, so this one must not.",
                fix="start the command again once no other process has the run: it goes on from the last checkpoint.",
            )

    def release(self) -> None:
        """Ends the heartbeat and removes the lock if it is still this one's. Harmless twice and in a forked child."""
        if os.getpid() != self.owner.pid or self._released.is_set():
            return
        self._released.set()
        self._thread.join(timeout=PATIENCE_SECONDS)  # a dead file server must not keep the process from ending
        _remove_own(self.path, self.owner)

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._released.wait(self._heartbeat_seconds):
            try:
                seen = _read(self.path)
                if seen is not None and seen.owner.token == self.owner.token:
                    os.utime(self.path)  # no times given: a file server sets its own
                    continue
            except OSError as error:  # a file server that doesn't answer for a while
                log.warning("The heartbeat of %s failed and will be tried again: %s", self.path, error)
                continue
            if self._released.is_set():
                return
            now = "was removed" if seen is None else f"was taken over by {seen.owner}"
            self.lost = f"The lock {self.path} of this process ({self.owner}) {now}."
            log.error(self.lost)
            if self._on_lost is not None:
                self._on_lost(self.lost)
            return


def acquire_lock(
    path: Path,
    *,
    on_lost: Callable[[str], None] | None = None,
    job_state: JobState | None = None,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    stale_seconds: float = STALE_SECONDS,
) -> RunLock:
    """Takes the lock at `path`, whose directory exists, or says who has it.

    A lock is stale when its process is gone (same host, boot and pid namespace: known at once), when its SLURM job has
    ended or was requeued since, or else when its heartbeat is older than `stale_seconds`.

    Args:
        on_lost: called once, from the heartbeat's thread, with a message, when the lock is another's or gone.
        job_state: for a SLURM job id: True while it runs, False once it has ended, None where that isn't known.

    Raises:
        LaunchError: another process has the run, or the lock can't be written.
    """
    contender = _Contender(path, owner=this_process(), job_state=job_state, stale_seconds=stale_seconds)
    try:
        holder = contender.take(path)
        if holder is not None:
            raise _in_use(path, holder)
        contender.remove_litter()
    except OSError as error:
        raise LaunchError(
            f"{path} can't be written: {error}.",
            why="a run needs a lock, so that two processes never write it at once.",
            fix="free some space."
            if is_disk_full(error)
            else "make the directory writable, or choose another run.root.",
        ) from error
    return RunLock(path, owner=contender.owner, on_lost=on_lost, heartbeat_seconds=heartbeat_seconds)


@dataclass(frozen=True)
class _Seen:
    """A lock file as it was read: its owner, and the age of its heartbeat by the file system's own clock."""

    owner: Owner
    age_seconds: float


class _Contender:
    """One process that wants a lock."""

    def __init__(self, lock: Path, *, owner: Owner, job_state: JobState | None, stale_seconds: float) -> None:
        self.lock = lock
        self.owner = owner
        self._job_state = job_state
        self._stale_seconds = stale_seconds
        self._content = json_text(dataclasses.asdict(owner), indent=2) + "\n"

    def take(self, path: Path) -> _Seen | None:
        """Takes the lock, or a claim, at `path`; None once it is ours, else what is in the way."""
        began = time.monotonic()
        while not create_exclusive(path, self._content):
            seen = _read(path, clock=self.lock.parent)
            if seen is not None:
                state = self._state(seen)
                if state == "stale" and self._take_over(path, seen):
                    return None
                patience = {"live": 0.0, "stale": PATIENCE_SECONDS, "dying": DYING_SECONDS}[state]
                if time.monotonic() - began >= patience:
                    return seen
            time.sleep(_RANDOM.uniform(0.01, 0.05))  # a released lock, a rival's takeover, a process on its way out
        return None

    def remove_litter(self) -> None:
        """Removes what contenders that were killed left behind. Call with the lock held.

        Every claim is for another token than that of the lock that is held now, so it is worth nothing any more.
        """
        now = _clock(self.lock.parent)
        for pattern in (f"{self.lock.name}.claim-*", f".{self.lock.name}.*.tmp", ".clock.*.tmp"):
            for litter in self.lock.parent.glob(pattern):
                with contextlib.suppress(OSError):
                    if now - litter.stat().st_mtime > self._stale_seconds:
                        litter.unlink()

    def _state(self, seen: _Seen) -> Literal["live", "dying", "stale"]:
        process = process_state(seen.owner, seen_from=self.owner)
        if process == "alive":
            return "live"
        if process == "gone":
            return "stale"
        if process == "dying":
            return "dying"
        job = seen.owner.job_id
        if job and job == self.owner.job_id and seen.owner.job_restart != self.owner.job_restart:
            return "stale"  # this job was requeued: SLURM ended its former processes
        running = self._job_state(job) if job and self._job_state is not None else None
        if running is not None and job != self.owner.job_id:
            return "live" if running else "stale"
        return "stale" if seen.age_seconds > self._stale_seconds else "live"

    def _take_over(self, path: Path, seen: _Seen) -> bool:
        claim = self.lock.with_name(f"{self.lock.name}.claim-{seen.owner.token}")
        if self.take(claim) is not None:
            return False

        def still_ours() -> bool:
            # Every takeover of this token goes through the claim, so while we hold it the token can't change. The claim
            # is looked at last: had this process been stopped for long, a rival would have taken it for dead.
            return _has_token(path, seen.owner.token) and _has_token(claim, self.owner.token)

        try:
            if not write_atomic(path, self._content, only_if=still_ours):
                return False
        finally:
            _remove_own(claim, self.owner)
        log.warning("Took over %s from %s: it no longer runs.", path.name, seen.owner)
        return True


def _read(path: Path, *, clock: Path | None = None) -> _Seen | None:
    """The lock at `path`, None where there is none; `clock` is a directory whose file system tells the time."""
    try:
        with path.open("rb") as file:  # opening makes a network file system fetch the newest times
            content = file.read()
            modified = os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        return None
    owner = None
    with contextlib.suppress(ValueError):
        owner = owner_from_fields(json.loads(content))
    if owner is None:  # cut off or edited: nobody can be asked, so its age decides; the name keeps equal rubbish apart
        owner = Owner(token=hashlib.sha256(path.name.encode() + b"\n" + content).hexdigest()[:32])
    return _Seen(owner, _clock(clock) - modified if clock is not None else 0.0)


def _clock(directory: Path) -> float:
    """The file system's own time in seconds: machines that share it may disagree about the time."""
    probe = directory / f".clock.{uuid.uuid4().hex}.tmp"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _has_token(path: Path, token: str) -> bool:
    seen = _read(path)
    return seen is not None and seen.owner.token == token


def _remove_own(path: Path, owner: Owner) -> None:
    with contextlib.suppress(OSError):
        if _has_token(path, owner.token):
            path.unlink()


def _in_use(path: Path, holder: _Seen) -> LaunchError:
    owner = holder.owner
    stop = f"scancel {owner.job_id}" if owner.job_id else f"kill {owner.pid} on {owner.host}"
    age = max(holder.age_seconds, 0)
    return LaunchError(
        f"{path.parent} is in use by {owner}.",
        why=f"two writers would mix their checkpoints and metrics; its heartbeat is {age:.0f} s old.",
        fix=f"wait for it, stop it ({stop}), or start a run of its own with run.fresh=true; "
        f"if you are sure that it no longer runs, remove {path}.",
    )
