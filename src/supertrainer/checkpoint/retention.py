"""Which checkpoints stay, and how one goes: renamed first, so that a kill leaves no half one with a step's name."""

from __future__ import annotations

import logging
import math
import os
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path

from supertrainer.checkpoint.manifest import Checkpoint

log = logging.getLogger(__name__)

TRASH = ".trash"


def best_of(checkpoints: Sequence[Checkpoint], *, metric: str, greater_is_better: bool) -> Checkpoint | None:
    """The checkpoint with the best finite `extra["metrics"][metric]`, the earliest of equals; or None."""
    best: Checkpoint | None = None
    best_value = -math.inf
    for checkpoint in sorted(checkpoints, key=lambda checkpoint: checkpoint.step):
        metrics = checkpoint.extra.get("metrics")
        value = metrics.get(metric) if isinstance(metrics, dict) else None
        if isinstance(value, int | float) and math.isfinite(value):
            signed = value if greater_is_better else -value
            if signed > best_value:
                best, best_value = checkpoint, signed
    return best


def discard(directory: Path) -> None:
    """Deletes a step directory; one that isn't there or can't go is no error.

    It leaves its name at once, by a rename, so a kill in the middle of the deletion leaves no half checkpoint.
    """
    trash = directory.parent / TRASH
    try:
        if not directory.exists():
            return
        trash.mkdir(exist_ok=True)
        os.rename(directory, trash / f"{directory.name}.{uuid.uuid4().hex}")
    except FileNotFoundError:
        return  # another process was faster
    except OSError as error:
        log.warning("%s can't be removed and stays: %s", directory, error)
        return
    empty_trash(directory.parent)


def empty_trash(checkpoints: Path) -> None:
    """Deletes what was discarded. What can't go now (a file that a network file system holds open) goes next time."""
    shutil.rmtree(checkpoints / TRASH, ignore_errors=True)


def remove_staged(directory: Path) -> None:
    """Deletes an unfinished checkpoint. In place: it has no step's name, and a full disk has no room for a trash."""
    shutil.rmtree(directory, ignore_errors=True)
