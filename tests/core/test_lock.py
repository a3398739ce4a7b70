"""One writer per run: who is refused, who takes over, and how a lost lock is noticed."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from supertrainer.core import lock as lock_module
from supertrainer.core.errors import LaunchError
from supertrainer.core.lock import acquire_lock
from supertrainer.core.owner import Owner, this_process

HOLD = """
import sys
from pathlib import Path
from supertrainer.core.lock import acquire_lock
lock = acquire_lock(Path(sys.argv[1]))
print("held", flush=True)
input()
"""
ELSEWHERE = Owner(
    token="a" * 32, host="node7", boot_id="b", pid_namespace="p", pid=41, started="2026-11-30T12:00:00+00:00"
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    return tmp_path / "lock.json"


def write_lock(path: Path, owner: Owner, *, age_seconds: float) -> None:
    path.write_text(json.dumps(dataclasses.asdict(owner)))
    set_age(path, age_seconds)


def set_age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def token(path: Path) -> str:
    return json.loads(path.read_text())["token"]


def test_a_lock_says_who_holds_it_and_goes_with_its_holder(path: Path) -> None:
    with acquire_lock(path) as lock:
        fields = json.loads(path.read_text())
        assert fields["pid"] == os.getpid()
        assert fields == dataclasses.asdict(lock.owner)
        assert os.listdir(path.parent) == ["lock.json"]
    assert os.listdir(path.parent) == []


def test_a_second_start_is_refused_with_pid_host_time_and_fix(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()  # type: ignore[union-attr]
        with pytest.raises(LaunchError) as caught:
            acquire_lock(path)
    finally:
        holder.communicate(b"\n")
    me = this_process()
    problem = caught.value.problems[0]
    assert problem.what.startswith(f"{path.parent} is in use by process {holder.pid} on {me.host} since 20")
    assert "two writers" in problem.why
    assert f"kill {holder.pid} on {me.host}" in problem.fix
    assert "run.fresh=true" in problem.fix


def test_one_process_cannot_hold_a_run_twice(path: Path) -> None:
    with acquire_lock(path), pytest.raises(LaunchError, match=f"process {os.getpid()} "):
        acquire_lock(path)


def test_after_kill_9_the_next_start_goes_on_at_once(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()  # type: ignore[union-attr]
    os.kill(holder.pid, signal.SIGKILL)  # not waited for: it may still be dying, then it is a zombie
    began = time.monotonic()
    with acquire_lock(path) as lock:
        assert time.monotonic() - began < 2
        assert token(path) == lock.owner.token
    holder.communicate()


def test_a_process_that_is_dying_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that held many gigabytes takes seconds to be gone."""
    write_lock(path, dataclasses.replace(this_process(), pid_start_time=1), age_seconds=0)
    states = iter(["dying", "dying", "gone"])
    monkeypatch.setattr(lock_module, "process_state", lambda owner, seen_from: next(states))
    acquire_lock(path).release()
    assert next(states, "asked three times") == "asked three times"


def test_a_process_that_does_not_die_keeps_its_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(path, this_process(), age_seconds=0)
    monkeypatch.setattr(lock_module, "process_state", lambda owner, seen_from: "dying")
    monkeypatch.setattr(lock_module, "DYING_SECONDS", 0.1)
    with pytest.raises(LaunchError, match=f"process {os.getpid()} "):
        acquire_lock(path)


def test_a_process_that_is_stopped_still_holds_its_run(path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()  # type: ignore[union-attr]
    holder.send_signal(signal.SIGSTOP)
    set_age(path, 3600)
    with pytest.raises(LaunchError, match=f"process {holder.pid} "):
        acquire_lock(path)
    holder.kill()
    holder.communicate()


def test_a_lock_from_elsewhere_is_live_while_its_heart_beats(path: Path) -> None:
    write_lock(path, ELSEWHERE, age_seconds=100)
    with pytest.raises(LaunchError, match="process 41 on node7 since 2026-11-30"):
        acquire_lock(path)


def test_a_lock_from_elsewhere_without_a_heartbeat_is_taken_over(path: Path) -> None:
    write_lock(path, ELSEWHERE, age_seconds=130)
    with acquire_lock(path) as lock:
        assert token(path) == lock.owner.token
        assert os.listdir(path.parent) == ["lock.json"]


def test_a_wrong_local_clock_takes_nobodys_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(path, ELSEWHERE, age_seconds=0)
    wrong = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: wrong)
    with pytest.raises(LaunchError, match="node7"):
        acquire_lock(path)


@pytest.mark.parametrize(
    ("running", "age_seconds", "taken"), [(True, 999, False), (False, 0, True), (None, 999, True), (None, 0, False)]
)
def test_the_queue_decides_for_a_lock_of_a_job(
    path: Path, running: bool | None, age_seconds: float, taken: bool
) -> None:
    write_lock(path, dataclasses.replace(ELSEWHERE, job_id="99"), age_seconds=age_seconds)
    asked: list[str] = []

    def job_state(job: str) -> bool | None:
        asked.append(job)
        return running

    if taken:
        acquire_lock(path, job_state=job_state).release()
    else:
        with pytest.raises(LaunchError, match=r"SLURM job 99.*[\s\S]*scancel 99"):
            acquire_lock(path, job_state=job_state)
    assert set(asked) == {"99"}


def test_a_requeued_job_goes_on_at_once_on_another_node(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue calls the job running, since it is this very one."""
    write_lock(path, dataclasses.replace(ELSEWHERE, job_id="99", job_restart=0), age_seconds=0)
    monkeypatch.setenv("SLURM_JOB_ID", "99")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    acquire_lock(path, job_state=lambda job: True).release()


def test_a_dead_process_of_this_very_job_is_not_kept_alive_by_the_queue(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lock(path, dataclasses.replace(ELSEWHERE, job_id="99"), age_seconds=130)
    monkeypatch.setenv("SLURM_JOB_ID", "99")
    acquire_lock(path, job_state=lambda job: True).release()


def test_two_steps_of_one_job_exclude_each_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lock(path, dataclasses.replace(ELSEWHERE, job_id="99"), age_seconds=0)
    monkeypatch.setenv("SLURM_JOB_ID", "99")
    with pytest.raises(LaunchError, match="SLURM job 99"):
        acquire_lock(path)


@pytest.mark.parametrize("content", [b"", b'{"token": "aaaa', b"\xff\xfe", b"[]", b'{"token": "../../x"}'])
def test_a_lock_that_cannot_be_read_does_not_wedge_the_run(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(LaunchError, match="an unknown process"):
        acquire_lock(path)  # it may be somebody who is just writing it
    set_age(path, 130)
    with acquire_lock(path) as lock:
        assert token(path) == lock.owner.token
    assert os.listdir(path.parent) == []


def test_claims_of_contenders_that_died_are_taken_over(path: Path) -> None:
    stale = dataclasses.replace(this_process(), pid_start_time=1)
    dead = dataclasses.replace(stale, token="b" * 32)
    dead_too = dataclasses.replace(stale, token="c" * 32)
    write_lock(path, stale, age_seconds=0)
    write_lock(path.with_name(f"lock.json.claim-{stale.token}"), dead, age_seconds=0)
    write_lock(path.with_name(f"lock.json.claim-{dead.token}"), dead_too, age_seconds=0)
    with acquire_lock(path) as lock:
        assert token(path) == lock.owner.token
        assert os.listdir(path.parent) == ["lock.json"]


def test_unreadable_lock_and_claim_are_taken_over_too(path: Path) -> None:
    path.write_bytes(b"")
    set_age(path, 130)
    rubbish = lock_module._read(path)
    assert rubbish is not None
    claim = path.with_name(f"lock.json.claim-{rubbish.owner.token}")
    claim.write_bytes(b"")
    set_age(claim, 130)
    acquire_lock(path).release()
    assert os.listdir(path.parent) == []


def test_a_contender_that_comes_too_late_leaves_the_new_lock_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It read the stale lock, slept, and wakes when a rival has won and removed its claim."""
    stale = dataclasses.replace(this_process(), pid_start_time=1)
    write_lock(path, stale, age_seconds=0)
    take_over = lock_module._Contender._take_over
    rivals: list[str] = []

    def sleep_first(self: lock_module._Contender, target: Path, seen: lock_module._Seen) -> bool:
        if not rivals:
            rivals.append("a rival")
            rivals.append(acquire_lock(path).owner.token)
        return take_over(self, target, seen)

    monkeypatch.setattr(lock_module._Contender, "_take_over", sleep_first)
    with pytest.raises(LaunchError, match="in use"):
        acquire_lock(path)
    assert token(path) == rivals[1]


def test_old_litter_of_killed_contenders_is_removed_and_fresh_is_not(path: Path) -> None:
    for name in (".lock.json.1.tmp", ".clock.1.tmp", f"lock.json.claim-{'d' * 32}"):
        path.with_name(name).touch()
        set_age(path.with_name(name), 130)
    path.with_name(".lock.json.2.tmp").touch()
    with acquire_lock(path):
        assert sorted(os.listdir(path.parent)) == [".lock.json.2.tmp", "lock.json"]


def test_a_forked_child_does_not_release_its_parents_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = acquire_lock(path)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: 1)
        lock.release()
    assert path.exists()
    lock.release()
    assert not path.exists()


def test_a_directory_that_is_not_there_is_an_error_with_a_fix(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"can't be written[\s\S]*Fix: make the directory writable"):
        acquire_lock(tmp_path / "missing" / "lock.json")
