"""`scripts/compare.py`: runs side by side, as a table, JSON or CSV. No torch."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supertrainer.benchmark.comparison import ComparedRun, compare, differing_keys
from supertrainer.benchmark.display import duration_text
from supertrainer.config.nearest import did_you_mean
from supertrainer.config.secrets import redact
from supertrainer.core.errors import ConfigError, SupertrainerError
from supertrainer.core.files import json_text
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.sweep_directory import is_sweep, read_sweep
from supertrainer.launch.table import aligned

USAGE = """usage: compare.py RUN… [--json | --csv]

  RUN     a run directory (runs/NAME), a sweep's (sweeps/NAME), or a directory of runs (runs)
  --json  everything, for programs
  --csv   a line a run

Sorted by the main metric, the best first. Memory is that of one process: estimated before training, and measured; on a
CPU the growth of resident memory over the start of training, on a GPU what torch allocated."""
_FLAGS = ("--json", "--csv", "--help")
_MOST_IN_A_LINE = 4  # differing keys that fit beside the rest


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code, as `main.py` does."""
    flags = [word for word in argv if word.startswith("-")]
    paths = [Path(word) for word in argv if not word.startswith("-")]
    if "--help" in flags or "-h" in flags or not argv:
        print(USAGE)
        return 0 if argv else 2
    try:
        _require(flags, paths)
        runs = compare(_expand(paths))
    except SupertrainerError as error:
        print(redact(str(error)), file=sys.stderr)
        return error.exit_code
    keys = differing_keys(runs)
    if "--json" in flags:
        print(redact(json_text([_row(run, keys) for run in runs], indent=2)))
    elif "--csv" in flags:
        _write_csv(runs, keys)
    else:
        print(redact(_table(runs, keys)))
    return 0


def _require(flags: Sequence[str], paths: Sequence[Path]) -> None:
    unknown = [flag for flag in flags if flag not in _FLAGS]
    if unknown:
        raise ConfigError(f"unknown flag {unknown[0]}.", fix=did_you_mean(unknown[0], _FLAGS))
    if {"--json", "--csv"} <= set(flags):
        raise ConfigError("--json and --csv exclude each other.", fix="choose one.")
    if not paths:
        raise ConfigError("no run is given.", fix="compare.py runs/A runs/B, or a sweep's directory.")


def _expand(paths: Sequence[Path]) -> list[RunDirectory]:
    """The runs behind run, sweep and other directories, each once; what is none stays, and is told so."""
    found: dict[Path, RunDirectory] = {}
    for path in paths:
        inside = [path]
        if is_sweep(path):
            inside = [swept.run.path for swept in read_sweep(path)]
        elif path.is_dir() and not (path / "config.json").is_file():
            inside = sorted(child.parent for child in path.glob("*/config.json")) or [path]
        for run in inside:
            found.setdefault(run.resolve(), RunDirectory(run))
    return list(found.values())


def _row(run: ComparedRun, keys: Sequence[str]) -> dict[str, Any]:
    return {
        "run": run.run,
        "state": run.state,
        "config": {key: run.config.get(key) for key in keys},
        "main_metric": run.main_metric or None,
        "split": run.split or None,
        "metrics": dict(run.metrics),
        "steps": run.steps,
        "seconds": run.seconds,
        "rows_per_second": run.rows_per_second,
        "estimated_gib": run.estimated_gib,
        "measured_gib": run.measured_gib,
        "estimated_over_measured": run.ratio,
    }


def _write_csv(runs: Sequence[ComparedRun], keys: Sequence[str]) -> None:
    lines = []
    for run in runs:
        row = _row(run, keys)
        config, metrics = row.pop("config"), row.pop("metrics")
        lines.append({**row, **{f"metric.{name}": value for name, value in metrics.items()}, **config})
    columns = dict.fromkeys(column for line in lines for column in line)
    writer = csv.DictWriter(sys.stdout, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    for line in lines:
        writer.writerow({key: "" if value is None else redact(str(value)) for key, value in line.items()})


def _table(runs: Sequence[ComparedRun], keys: Sequence[str]) -> str:
    """A line a run; where configs differ in many keys, a second table of these."""
    beside = keys if len(keys) <= _MOST_IN_A_LINE else []
    metrics = list(dict.fromkeys(run.main_metric for run in runs if run.main_metric))
    header = ["run", "state", *(key.rpartition(".")[2] for key in beside), "split", *metrics]
    header += ["time", "rows/s", "estimated", "measured", "ratio"]
    lines = [header]
    for run in runs:
        line = [run.run, run.state, *(_shown(run.config.get(key)) if run.config else "-" for key in beside)]
        line += [run.split or "-", *(_number(run.metrics.get(metric), 4) for metric in metrics)]
        line += ["-" if run.seconds is None else duration_text(run.seconds), _number(run.rows_per_second, 1)]
        lines.append([*line, _gib(run.estimated_gib), _gib(run.measured_gib), _number(run.ratio, 2)])
    text = aligned(lines)
    if keys and not beside:
        names = [["", *(str(number) for number in range(1, len(runs) + 1))]]
        text += "\n\ndiffering config, by the order of the runs above\n"
        text += aligned([*names, *([key, *(_shown(run.config.get(key)) for run in runs)] for key in keys)])
    return text


def _number(value: Any, digits: int) -> str:
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "-"


def _gib(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} GiB"


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 32 else f"{text[:31]}…"
