"""Run as a process by test_disk_full.py: a store whose disk, or file size limit, is used up in three places."""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from supertrainer.checkpoint import CheckpointStore
from supertrainer.core.errors import CheckpointError


def stage(store: CheckpointStore, step: int, size: int) -> Path:
    staged = store.incoming / f"checkpoint-{step}"
    staged.mkdir(parents=True)
    (staged / "model.safetensors").write_bytes(bytes([step]) * size)
    return staged


if __name__ == "__main__":
    if len(sys.argv) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
    store = CheckpointStore(Path(sys.argv[1]) / "checkpoints", keep_last=None, keep_best=None)
    store.prepare()
    answers: dict[str, object] = {}
    try:
        with store.writing(step=1):
            stage(store, 1, 2_000_000)
    except CheckpointError as error:
        answers["first"] = str(error)
    store.commit(stage(store, 1, 300_000), step=1, extra={})
    try:
        with store.writing(step=2):
            stage(store, 2, 900_000)
    except CheckpointError as error:
        answers["staging"] = str(error)
    answers["staged after"] = os.listdir(store.incoming)
    try:
        store.commit(stage(store, 2, 300_000), step=2, extra={"note": "x" * 600_000})
    except CheckpointError as error:
        answers["commit"] = str(error)
    latest = store.find_latest()
    answers["latest"] = latest.step if latest else None
    answers["directory"] = sorted(os.listdir(store.directory))
    store.commit(stage(store, 3, 300_000), step=3, extra={})
    answers["steps"] = store.steps()
    print(json.dumps(answers))
