"""A held lock shows that its owner lives, and notices when it is another's."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supertrainer.core.errors import LaunchError
from supertrainer.core.lock import acquire_lock
from supertrainer.core.owner import Owner

ELSEWHERE = Owner(token="a" * 32, host="node7", boot_id="b", pid_namespace="p", pid=41)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock.json"


def set_age(path: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def wait_until(condition: Callable[[], bool], *, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it didn't come to pass"
        time.sleep(0.01)


def test_the_heart_beats(path: Path) -> None:
    with acquire_lock(path, heartbeat_seconds=0.02):
        set_age(path, 3600)
        wait_until(lambda: time.time() - path.stat().st_mtime < 60)


def test_a_lock_that_was_taken_over_is_noticed_and_left_alone(path: Path) -> None:
    said: list[str] = []
    noticed = threading.Event()

    def on_lost(message: str) -> None:
        said.append(message)
        noticed.set()

    lock = acquire_lock(path, heartbeat_seconds=0.02, on_lost=on_lost)
    lock.raise_if_lost()
    path.with_name("new").write_text(json.dumps(dataclasses.asdict(ELSEWHERE)))
    os.replace(path.with_name("new"), path)
    assert noticed.wait(10)
    assert len(said) == 1
    assert "was taken over by process 41 on node7" in said[0]
    with pytest.raises(LaunchError, match="was taken over by process 41"):
        lock.raise_if_lost()
    lock.release()
    assert json.loads(path.read_text())["token"] == ELSEWHERE.token


def test_a_lock_that_was_removed_is_noticed(path: Path) -> None:
    noticed = threading.Event()
    lock = acquire_lock(path, heartbeat_seconds=0.02, on_lost=lambda message: noticed.set())
    path.unlink()
    assert noticed.wait(10)
    assert lock.lost.endswith("was removed.")
    lock.release()


def test_a_file_server_that_fails_for_a_while_loses_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def fail(target: Path) -> None:
        failed.set()
        raise OSError(116, "Stale file handle")

    with acquire_lock(path, heartbeat_seconds=0.02) as lock:
        with monkeypatch.context() as broken:
            broken.setattr(os, "utime", fail)
            assert failed.wait(10)
        set_age(path, 3600)
        wait_until(lambda: time.time() - path.stat().st_mtime < 60)
        assert not lock.lost
