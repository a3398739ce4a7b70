"""The check of where a run goes: its directory, the disk, the cluster's limits. No torch."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError
from supertrainer.launch.limits import limit_problems
from supertrainer.launch.slurm import controller_answers, has_slurm
from supertrainer.operations.check_result import CheckResult
from supertrainer.operations.opening import locate, require_same
from supertrainer.operations.paths import relative
from supertrainer.operations.snapshot import stored_identity
from supertrainer.operations.untrained import nothing_trained

_GIB = 2**30


def check_directory(config: Config, result: CheckResult) -> None:
    """Whether the run's directory is free or this run's, and can be written.

    Raises:
        ConfigError: it holds another run, or can't be made.
    """
    run = locate(config, source=None)
    there = stored_identity(run)
    state = "new"
    if there is not None and not config.run.fresh:
        require_same(run, config)
        state = "there already: the same command goes on with it"
        state = "there already, nothing was trained in it yet" if nothing_trained(run) else state
    elif there is not None:
        state = "another one beside the one that is there"
    result.facts["run directory"] = f"{relative(run.path)} ({state})"
    standing = _standing(Path(config.run.root))
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise ConfigError(
            f"run.root={config.run.root}: {standing} {'is not writable' if standing.is_dir() else 'is a file'}.",
            why="everything of a run is written there.",
            fix="run.root=PATH, a directory that you may write to.",
        )


def check_disk(config: Config, result: CheckResult, *, checkpoint: int) -> None:
    """Whether what a run keeps fits on the disk.

    Args:
        checkpoint: bytes of one.

    Raises:
        ConfigError: it doesn't.
    """
    standing = _standing(Path(config.run.root))
    free = shutil.disk_usage(standing).free
    kept = config.trainer.keep_last + 1 + (vars(config.trainer).get("select") == "best")
    needed = checkpoint * (kept + 1)
    result.facts["disk"] = f"{needed / _GIB:.2f} GiB for {kept} checkpoints and the model; {free / _GIB:.1f} GiB free"
    if free < needed:
        raise ConfigError(
            f"run.root={config.run.root}: {standing} has {free / _GIB:.2f} GiB free, {needed / _GIB:.2f} are needed.",
            why=f"{kept} checkpoints of {checkpoint / _GIB:.2f} GiB are there at once, and the model.",
            fix=f"free some space, run.root=PATH on another disk, or trainer.keep_last={max(kept - 2, 1)}.",
        )


def check_cluster(config: Config, result: CheckResult) -> None:
    """The cluster's limits, where something of it is asked for and SLURM answers."""
    slurm = config.cluster.slurm
    asked = [name for name in ("partition", "account", "qos", "constraint", "nodelist") if getattr(slurm, name)]
    if not asked:
        return
    wanted = ", ".join(f"{name} {getattr(slurm, name)}" for name in asked)
    if not has_slurm() or not controller_answers():
        result.facts["cluster"] = f"{wanted}: not compared with its limits, SLURM doesn't answer here"
        return
    found = limit_problems(config.cluster)
    result.problems += found
    job = f"{slurm.nodes} nodes × {config.cluster.tasks_per_node} processes, {slurm.timeout_min} min"
    result.facts["cluster"] = f"{wanted}, {job}: {'does not fit, see below' if found else 'within its limits'}"


def _standing(path: Path) -> Path:
    """The path, or the nearest of those around it that is there."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if place.exists())
