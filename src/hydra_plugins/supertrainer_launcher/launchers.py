"""The launchers of `hydra/launcher`: local (the default), submitit_local and submitit_slurm."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from supertrainer.config.cluster import SlurmConfig


class _CheckedLauncher(Launcher):
    """What the launchers share: they take runs that the front door has checked, and nothing else.

    Attributes:
        for_jobs: whether runs are checked for the job that their `cluster` node describes, not for this process.
    """

    for_jobs: ClassVar[bool] = False

    def require_possible(self, runs: Sequence[Any]) -> None:
        """Refuses planned runs that could never start."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's own entry; the front door calls `launch_runs` with runs that it has checked."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's own entry, which no command of ours reaches.

        Raises:
            RuntimeError: always; runs must be checked first.
        """
        raise RuntimeError("start sweeps with main.py --multirun, which checks every run before the first one starts")


class LocalLauncher(_CheckedLauncher):
    """Starts each run of a sweep as a process of its own, one after another."""

    def launch_runs(self, runs: Sequence[Any], *, directory: Path, record: Any) -> Sequence[int | None]:
        """Runs planned runs (`supertrainer.launch.sweep.PlannedRun`); returns their exit codes."""
        from supertrainer.launch.local import run_processes

        return run_processes(runs, record=record)


class SubmititLocalLauncher(_CheckedLauncher):
    """Starts the runs as submitit's local jobs, several at a time, each of one process or several."""

    for_jobs = True

    def __init__(self, **parameters: Any) -> None:
        """Takes the parameters of the node, which the runs' configs hold already."""

    def launch_runs(self, runs: Sequence[Any], *, directory: Path, record: Any) -> Sequence[int | None]:
        """Runs planned runs; returns their exit codes."""
        from supertrainer.launch.local_jobs import run_local_jobs

        return run_local_jobs(runs, record=record)


class SubmititSlurmLauncher(_CheckedLauncher):
    """Queues the runs in SLURM and returns, or waits."""

    for_jobs = True

    def __init__(
        self, *, wait: bool, poll_s: float, check: bool | None, submitit_folder: str | None, **parameters: Any
    ) -> None:
        """
        Args:
            wait: stay until every run has ended.
            poll_s: seconds between two looks at SLURM.
            check: check data and model before the first run is queued; None: only what comes from the Hub.
            submitit_folder: where arrays' scripts go; None: the sweep's directory.
            parameters: of sbatch, which the runs' configs hold already.
        """
        self._wait, self._poll_seconds, self._check = wait, poll_s, check
        self._folder = submitit_folder

    def require_possible(self, runs: Sequence[Any]) -> None:
        """Refuses planned runs that a script can't hold or the cluster never starts."""
        from supertrainer.operations.submittable import require_controller, require_submittable

        require_controller()
        require_submittable([run.config for run in runs], environment=os.environ)

    def launch_runs(self, runs: Sequence[Any], *, directory: Path, record: Any) -> Sequence[int | None]:
        """Queues planned runs; returns exit codes, None for a run that wasn't waited for."""
        from supertrainer.operations.queueing import queue_runs

        folder = Path(self._folder.replace("%j", directory.name)) if self._folder else directory
        return queue_runs(
            runs,
            directory=folder,
            record=record,
            check=self._check,
            wait=self._wait,
            poll_seconds=self._poll_seconds,
        )


# Plain nodes, not dataclasses: Hydra executes this module before it is in sys.modules, where dataclasses look it up.
_PARAMETERS: dict[str, Any] = dict.fromkeys(SlurmConfig.model_fields) | {
    "name": None,  # of the job; None: the run's name
    "additional_parameters": {},
    "stderr_to_stdout": True,
    "submitit_folder": None,
}
_NODES: dict[str, dict[str, Any]] = {
    "local": {"_target_": f"{LocalLauncher.__module__}.LocalLauncher"},
    "submitit_local": {"_target_": f"{LocalLauncher.__module__}.SubmititLocalLauncher", **_PARAMETERS},
    "submitit_slurm": {
        "_target_": f"{LocalLauncher.__module__}.SubmititSlurmLauncher",
        **_PARAMETERS,
        "wait": False,
        "poll_s": 5,
        "check": None,
    },
}
for _name, _node in _NODES.items():
    ConfigStore.instance().store(group="hydra/launcher", name=_name, node=_node)
