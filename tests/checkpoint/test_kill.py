"""kill -9 at random moments: what was committed stays, what is found is whole, and no restart waits."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from supertrainer.checkpoint import CheckpointStore

COMMITTER = Path(__file__).parent / "committer.py"
KILLS = 30
BEST_STEP = 7


def test_thirty_kills_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", keep_last=2, keep_best=("f1", True))
    moments = random.Random(0)
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    last = 0
    halves = 0
    for number in range(KILLS):
        errors = (tmp_path / "errors.txt").open("w")
        with errors:
            process = subprocess.Popen(
                [sys.executable, COMMITTER, tmp_path], stdout=subprocess.PIPE, stderr=errors, text=True, env=unmeasured
            )
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["from", str(last), "0"], f"restart {number}"
        lines = [process.stdout.readline() for _ in range(moments.randrange(3))]
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        lines += process.communicate()[0].splitlines()
        told = (lines, process.returncode, Path(errors.name).read_text())
        assert all(line.startswith("committed ") for line in lines), told
        committed = [int(line.split()[1]) for line in lines]
        said = committed[-1] if committed else last
        latest = store.find_latest()
        if latest is None:
            assert said == 0
            continue
        assert latest.skipped == (), f"kill {number}"
        assert latest.step in {said, said + 1}, f"kill {number}"  # + 1: renamed, and killed before it could say so
        for name in ("model.safetensors", "optimizer.pt", "dcp/.metadata"):
            text = f"{name} of step {latest.step}\n" * 5000
            assert (latest.path / name).read_text() == text, f"kill {number}"
        best = store.find_best()
        assert best is not None
        assert best.step == min(latest.step, BEST_STEP)
        halves += any(store.incoming.rglob("*"))
        last = latest.step
    assert last > BEST_STEP
    assert halves > KILLS // 4, "hardly a kill met a checkpoint that was being written: this test proves nothing"
