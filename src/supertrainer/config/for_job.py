"""Configs of runs that a job will execute: validated for its processes and devices, not for this machine's."""

from __future__ import annotations

import json
from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf
from pydantic import ValidationError

from supertrainer.config.cluster import ClusterConfig, SlurmConfig
from supertrainer.config.compose import Composed
from supertrainer.config.spine import Config
from supertrainer.config.validate import resolve, validate
from supertrainer.core.errors import ConfigError
from supertrainer.core.placement import planned

_LAUNCHER_NAMES = {"name": "job_name"}  # where the launcher's users know another name than sbatch's


def validate_for_job(composed: Composed, *, environment: Mapping[str, str]) -> Config:
    """Validates a composed tree for the job that its `cluster` node describes.

    Raises:
        ConfigError: every problem of it.
    """
    cluster = _cluster(composed.tree)
    if cluster is None:
        return validate(composed, environment=environment)  # says what is wrong with it
    with planned(cluster.placement):
        return validate(composed, environment=environment)


def with_launcher(composed: Composed) -> Composed:
    """The tree with the launcher's own parameters (`hydra.launcher.partition=…`) over those of its `cluster` node.

    Raises:
        ConfigError: one that has no meaning here.
    """
    if not composed.hydra.launcher.stderr_to_stdout:
        raise ConfigError(
            "hydra.launcher.stderr_to_stdout=false: a run has one log.",
            why="an error beside the line that it follows is found sooner.",
            fix="leave it out.",
        )
    for key, value in composed.hydra.launcher.items():
        name = _LAUNCHER_NAMES.get(str(key), str(key))
        if value is not None and value != {} and name in SlurmConfig.model_fields:
            OmegaConf.update(composed.tree, f"cluster.slurm.{name}", value, merge=True, force_add=True)
    return composed


def _cluster(tree: DictConfig) -> ClusterConfig | None:
    node = OmegaConf.select(tree, "cluster")
    if node is None:
        return ClusterConfig()
    try:
        return ClusterConfig.model_validate_json(json.dumps(resolve(node)[0]))
    except ValidationError:
        return None
