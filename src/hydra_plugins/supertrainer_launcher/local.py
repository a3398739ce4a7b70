"""`hydra/launcher=local`, the default: a process a run, here, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class LocalLauncher(Launcher):
    """Starts each run of a sweep as a process of its own."""

    def launch_runs(self, runs: Sequence[Any], *, record: Any) -> list[int]:
        """Runs planned runs (`supertrainer.launch.sweep.PlannedRun`); returns their exit codes."""
        from supertrainer.launch.local import run_processes

        return run_processes(runs, record=record)

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Hydra's own entry; the front door calls `launch_runs` with runs that it has checked."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Hydra's own entry, which no command of ours reaches.

        Raises:
            RuntimeError: always; runs must be checked first.
        """
        raise RuntimeError("start sweeps with main.py --multirun, which checks every run before the first one starts")


# A plain node, not a dataclass: Hydra executes this module before it is in sys.modules, where dataclasses look it up.
ConfigStore.instance().store(
    group="hydra/launcher", name="local", node={"_target_": f"{LocalLauncher.__module__}.LocalLauncher"}
)
