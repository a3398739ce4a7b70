"""Run as a process by test_kill.py, and killed: commits one checkpoint after the other, going on from the last."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from supertrainer.checkpoint import CheckpointStore
from supertrainer.core.lock import acquire_lock

BEST_STEP = 7


def content(step: int, name: str) -> bytes:
    return f"{name} of step {step}\n".encode() * 5000


def write(staged: Path, step: int) -> None:
    (staged / "dcp").mkdir(parents=True)
    for name in ("model.safetensors", "optimizer.pt", "dcp/.metadata", "training_args.bin"):
        (staged / name).write_bytes(content(step, name))


def say(line: str) -> None:
    """In one call of the system: a kill leaves no half line, whatever Python's buffering is."""
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    run = Path(sys.argv[1])
    with acquire_lock(run / "lock.json"):
        store = CheckpointStore(run / "checkpoints", keep_last=2, keep_best=("f1", True))
        store.prepare()
        latest = store.find_latest()
        step = latest.step if latest is not None else 0
        say(f"from {step} {len(latest.skipped) if latest is not None else 0}")
        while True:
            step += 1
            staged = store.incoming / f"checkpoint-{step}"
            write(staged, step)
            store.commit(staged, step=step, extra={"metrics": {"f1": 1 / (1 + abs(step - BEST_STEP))}})
            say(f"committed {step}")
            store.prune()
