"""A full disk ends in a clear error, with the last good checkpoint intact and the unfinished one gone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FULL_DISK = Path(__file__).parent / "full_disk.py"


def check(answers: dict[str, Any], *, cause: str) -> None:
    assert re.search(rf"the checkpoint of step 1 can't be written to \S+: .*{cause}", answers["first"])
    assert "there is none before it" in answers["first"]
    assert re.search(rf"the checkpoint of step 2 can't be written to \S+: .*{cause}", answers["staging"])
    assert re.search(
        r"Why: [\d.,]+ MiB are free, at least 0\.\d MiB are needed; the unfinished files", answers["staging"]
    )
    assert "step 1, the last good one, is intact" in answers["staging"]
    assert "Fix: free some space" in answers["staging"]
    assert answers["staged after"] == []
    assert re.search(rf"the checkpoint of step 2 can't be written to \S+: .*{cause}", answers["commit"])
    assert answers["latest"] == 1
    assert answers["directory"] == [".incoming", "step-00000001"]
    assert answers["steps"] == [1, 3]  # the space that was freed is used


def test_on_a_small_file_system(tmp_path: Path) -> None:
    # A mount in a namespace of its own ends with its process, whatever happens.
    mount = 'mount -t tmpfs -o size=1m none "$0" && echo mounted && "$@"'
    command = [
        "unshare",
        "--mount",
        "--map-root-user",
        "sh",
        "-c",
        mount,
        tmp_path,
        sys.executable,
        FULL_DISK,
        tmp_path,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout.startswith("mounted"):
        pytest.skip(f"this machine doesn't let a user mount a tmpfs: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout.splitlines()[1]), cause="No space left on device")


def test_past_a_file_size_limit(tmp_path: Path) -> None:
    command = [sys.executable, FULL_DISK, tmp_path, "limit"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    check(json.loads(done.stdout), cause="File too large")
