"""Runs of a sweep as submitit's local jobs: several at a time, of several processes each, in a time limit. No torch."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit

from supertrainer.core.errors import INTERRUPTED
from supertrainer.launch.local import command_line, table
from supertrainer.launch.sweep import PlannedRun

POLL_SECONDS = 0.5


class RunTask:
    """One process of a run, as submitit starts it: main.py in a process of its own, which gets the signals."""

    def __init__(self, words: Sequence[str], *, processes: int) -> None:
        self._words = list(words)
        self._processes = processes

    def __call__(self) -> int:
        """Returns the exit code of main.py."""
        if self._processes > 1:
            os.environ["MASTER_ADDR"] = "127.0.0.1"
            there = submitit.helpers.TorchDistributedEnvironment()
            there.master_addr = "127.0.0.1"  # a host's own name need not resolve
            there.export(set_cuda_visible_devices=False, overwrite=True)
        process = subprocess.Popen([sys.executable, *self._words])
        for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT):  # submitit's own announces the time limit
            signal.signal(number, lambda *_: process.send_signal(signal.SIGTERM))
        return process.wait()


def run_local_jobs(runs: Sequence[PlannedRun], *, record: Callable[[Mapping[str, Any]], None]) -> list[int]:
    """Runs each as a local job, `array_parallelism` at a time, and prints a table at the end.

    Args:
        record: called with a row per ended run: index, name, overrides, exit_code, seconds.

    Returns:
        Exit codes, in order; 130 for those that an interrupt kept from ending.
    """
    at_a_time = runs[0].config.cluster.slurm.array_parallelism
    waiting, started = list(runs), dict[int, tuple[submitit.Job[int], float]]()
    codes: dict[int, int] = {}
    try:
        while waiting or started:
            while waiting and len(started) < at_a_time:
                run = waiting.pop(0)
                started[run.index] = (_start(run), time.monotonic())
                print(f"[{run.index + 1}/{len(runs)}] {' '.join(run.swept)} -> {run.directory}", flush=True)
            for index, (job, since) in [item for item in started.items() if item[1][0].done()]:
                codes[index] = _exit_code(job)
                seconds = round(time.monotonic() - since, 1)
                record(_row(runs[index], exit_code=codes[index], seconds=seconds))
                print(f"[{index + 1}/{len(runs)}] ended with {codes[index]} after {seconds} s", flush=True)
                del started[index]
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        print("\nInterrupted: the runs save and stop.", flush=True)
        for job, _ in started.values():
            job.cancel()
        while not all(job.done() for job, _ in started.values()):
            time.sleep(POLL_SECONDS)
        print("The same command goes on with the runs that are left.", flush=True)
    ended = [codes.get(run.index, INTERRUPTED) for run in runs]
    print("\n" + table(runs, ended), flush=True)
    return ended


def _row(run: PlannedRun, *, exit_code: int, seconds: float) -> dict[str, Any]:
    row = {"index": run.index, "name": run.name, "overrides": list(run.swept)}
    return row | {"exit_code": exit_code, "seconds": seconds}


def _start(run: PlannedRun) -> submitit.Job[int]:
    cluster = run.config.cluster
    source = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(source), *filter(None, [os.environ.get("PYTHONPATH")])])
    executor = submitit.LocalExecutor(
        folder=run.directory.resolve() / "logs" / "local-jobs",
        python=f"env {shlex.quote(f'PYTHONPATH={path}')} {shlex.quote(cluster.slurm.python or sys.executable)}",
    )
    executor.update_parameters(
        timeout_min=cluster.slurm.timeout_min,
        signal_delay_s=cluster.slurm.signal_delay_s,
        tasks_per_node=cluster.tasks_per_node,
        gpus_per_node=cluster.slurm.num_gpus,
        stderr_to_stdout=True,
        setup=list(cluster.slurm.setup),
    )
    return executor.submit(RunTask(command_line(run.command), processes=cluster.tasks_per_node))


def _exit_code(job: submitit.Job[int]) -> int:
    """The greatest of the processes' exit codes; 1 where a process left none."""
    try:
        return max(abs(code) for code in job.results())
    except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError):
        return 1
