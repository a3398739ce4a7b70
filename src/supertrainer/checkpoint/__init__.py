"""Step directories: write aside, commit, find, keep; nothing else. No torch. May import core.

A store is told what its files are only by their names: `commit` takes any directory that a trainer has filled.
"""

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.checkpoint.store import CheckpointStore

__all__ = ["Checkpoint", "CheckpointStore"]
