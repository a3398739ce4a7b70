"""Who holds a lock: alive, dying, gone or not to be known from here."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from supertrainer.core.owner import Owner, owner_from_fields, process_state, this_process


def test_this_process_is_alive() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert len(me.token) == 32
    assert process_state(me, seen_from=this_process()) == "alive"


def test_a_reused_pid_is_not_the_same_process() -> None:
    me = this_process()
    assert process_state(dataclasses.replace(me, pid_start_time=me.pid_start_time - 1), seen_from=me) == "gone"


def test_a_killed_process_is_gone_even_before_its_parent_has_noticed() -> None:
    me = this_process()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = dataclasses.replace(me, pid=child.pid, pid_start_time=_start_time(child.pid))
    assert process_state(there, seen_from=me) == "alive"
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
    assert process_state(there, seen_from=me) == "gone"
    child.communicate()
    assert process_state(there, seen_from=me) == "gone"


def test_a_killed_process_that_still_frees_its_memory_is_dying() -> None:
    me = this_process()
    program = "memory = b'1' * (300 << 20); print(flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()  # type: ignore[union-attr]
    there = dataclasses.replace(me, pid=child.pid, pid_start_time=_start_time(child.pid))
    child.kill()
    states = []
    while "gone" not in states:
        states.append(process_state(there, seen_from=me))
    assert "alive" not in states
    child.communicate()


@pytest.mark.parametrize("field", ["host", "boot_id", "pid_namespace"])
def test_a_pid_means_nothing_on_another_machine(field: str) -> None:
    me = this_process()
    assert process_state(dataclasses.replace(me, **{field: "other"}), seen_from=me) == "unknown"


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_pid_that_no_process_has_is_never_signalled(pid: int) -> None:
    me = this_process()
    assert process_state(dataclasses.replace(me, pid=pid), seen_from=me) == "unknown"


def test_without_start_times_a_missing_process_is_still_known_to_be_gone() -> None:
    me = dataclasses.replace(this_process(), pid_start_time=0)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert process_state(dataclasses.replace(me, pid=child.pid), seen_from=me) == "gone"
    assert process_state(me, seen_from=me) == "unknown"


def test_the_description_names_process_host_job_and_time() -> None:
    owner = Owner(token="0" * 32, host="node7", pid=12, job_id="99", started="2026-11-30T12:00:00+00:00")
    assert str(owner) == "process 12 on node7 (SLURM job 99) since 2026-11-30T12:00:00+00:00"
    assert str(Owner(token="0" * 32)) == "an unknown process"


@pytest.mark.parametrize(
    "fields",
    [None, [], {}, {"token": "../../etc"}, {"token": "0" * 32, "pid": "12"}, {"token": "0" * 32, "pid": True}],
)
def test_fields_that_are_not_a_lock_of_ours_have_no_owner(fields: object) -> None:
    assert owner_from_fields(fields) is None


def test_a_lock_with_newer_fields_is_understood() -> None:
    assert owner_from_fields({"token": "0" * 32, "pid": 3, "colour": "red"}) == Owner(token="0" * 32, pid=3)


def test_the_requeue_count_of_a_job_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert (this_process().job_id, this_process().job_restart) == ("77", 2)


def _start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])
