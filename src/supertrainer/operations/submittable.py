"""What could never run as a job, told before anything is written. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from supertrainer.config.cluster import ClusterConfig
from supertrainer.config.secrets import SECRET_REFERENCE
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, LaunchError, Problem
from supertrainer.launch.limits import limit_problems
from supertrainer.launch.script import script_problems
from supertrainer.launch.slurm import controller_answers, has_slurm
from supertrainer.operations.opening import locate
from supertrainer.operations.submission import planned_job


def require_submittable(configs: Sequence[Config], *, environment: Mapping[str, str]) -> None:
    """Refuses what could never run as a job. Where SLURM doesn't answer its limits are not compared.

    Raises:
        ConfigError: with everything that the script or the cluster can't hold.
    """
    problems: list[Problem] = []
    clusters: dict[str, ClusterConfig] = {}
    for config in configs:
        if config.operation == "check":
            problems += ConfigError(
                "operation=check is no job.", why="a submit checks first.", fix="submit the operation that is meant."
            ).problems
        if config.operation == "export":
            problems += ConfigError(
                "operation=export is no job of its own.",
                why="it goes into the directory of a run that has finished.",
                fix="then=[export] exports at the end of the training's job; or start it in an interactive one.",
            ).problems
        problems += _unset_secrets(config, environment)
        clusters[config.cluster.model_dump_json()] = config.cluster
        problems += script_problems(planned_job(config, locate(config, source=None)))
    for cluster in clusters.values():
        problems += limit_problems(cluster)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))


def require_controller() -> None:
    """Refuses to submit while SLURM doesn't answer.

    Raises:
        LaunchError: SLURM isn't here, or doesn't answer.
    """
    if not has_slurm():
        raise LaunchError("sbatch is not on this machine.", why="a submit goes to SLURM.", fix="start on a login node.")
    if not controller_answers():
        raise LaunchError(
            "SLURM's controller doesn't answer.",
            why="what the cluster allows can't be compared, and a job might be queued unseen.",
            fix="try again in a few minutes; `scontrol ping` says whether it is there.",
        )


def _unset_secrets(config: Config, environment: Mapping[str, str]) -> list[Problem]:
    named = sorted(set(SECRET_REFERENCE.findall(json.dumps(config.dump()))))
    return [
        Problem(
            f"${{secret:{name}}}: {name} is not in the environment.",
            why="the job inherits the environment of its submit.",
            fix=f"export {name}=… before the submit.",
        )
        for name in named
        if not environment.get(name)
    ]
