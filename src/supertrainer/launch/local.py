"""Runs of a sweep as processes here, one after another, each kept apart from the others' failures."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.config.command import Command
from supertrainer.core.errors import INTERRUPTED
from supertrainer.launch.sweep import PlannedRun
from supertrainer.launch.table import aligned


def command_line(command: Command) -> list[str]:
    """The words after `python` that start a command in a process of its own."""
    words = [str(Path(sys.modules["supertrainer"].__path__[0]) / "main.py")]
    words += [word for path in command.config_dirs for word in ("--config-dir", str(path))]
    words += [f"config={command.source}"] if command.source else []
    return [*words, *command.overrides]


def run_processes(runs: Sequence[PlannedRun], *, record: Callable[[Mapping[str, Any]], None]) -> list[int]:
    """Runs each in a process of its own and prints a table at the end.

    Args:
        runs: in the order in which they run.
        record: called with a row per ended run: index, name, overrides, exit_code, seconds.

    Returns:
        Exit codes, in order; 130 for those that an interrupt kept from running.
    """
    codes: list[int] = []
    for run in runs:
        print(f"\n[{run.index + 1}/{len(runs)}] {' '.join(run.swept)} -> {run.directory}", flush=True)
        started = time.monotonic()
        code = _run(run)
        seconds = round(time.monotonic() - started, 1)
        codes.append(code)
        record(
            {"index": run.index, "name": run.name, "overrides": list(run.swept), "exit_code": code, "seconds": seconds}
        )
        if code == INTERRUPTED:
            break
    codes += [INTERRUPTED] * (len(runs) - len(codes))
    print("\n" + table(runs, codes), flush=True)
    if INTERRUPTED in codes:
        print("Interrupted: the same command goes on with the runs that are left.", flush=True)
    return codes


def _run(run: PlannedRun) -> int:
    process = subprocess.Popen([sys.executable, *command_line(run.command)])
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.wait()  # it got the interrupt too, and saves
        return INTERRUPTED


def table(runs: Sequence[PlannedRun], codes: Iterable[int]) -> str:
    """A line per run: its overrides, its directory, how it ended."""
    words = {0: "done", 2: "refused", 75: "saved, not finished", INTERRUPTED: "interrupted"}
    rows = [
        (" ".join(run.swept), str(run.directory), words.get(code, f"failed ({code})"))
        for run, code in zip(runs, codes, strict=True)
    ]
    return aligned(rows)
