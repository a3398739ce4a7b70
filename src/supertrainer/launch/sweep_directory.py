"""What a sweep's directory holds: which runs it is made of, and a table of what they came to."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from supertrainer.config.secrets import redact
from supertrainer.core.errors import ConfigError
from supertrainer.core.files import write_atomic
from supertrainer.core.run_directory import RunDirectory


@dataclass(frozen=True)
class SweptRun:
    """A run of a sweep.

    Attributes:
        run: its directory.
        overrides: those that tell it from the others, as they were written.
    """

    run: RunDirectory
    overrides: tuple[str, ...]


def is_sweep(path: Path) -> bool:
    """Whether a directory is a sweep's."""
    return (path / "sweep.yaml").is_file()


def write_sweep(directory: Path, runs: Sequence[SweptRun]) -> None:
    """Makes the directory with sweep.yaml."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"started: {time.strftime('%Y-%m-%dT%H:%M:%S%z')}", "runs:"]
    for swept in runs:
        lines += [
            f"- name: {json.dumps(swept.run.name)}",
            f"  directory: {json.dumps(str(swept.run.path.resolve()))}",
            f"  overrides: {json.dumps([redact(word) for word in swept.overrides])}",
        ]
    write_atomic(directory / "sweep.yaml", "\n".join(lines) + "\n")


def read_sweep(directory: Path) -> list[SweptRun]:
    """The runs of a sweep, in order; where they were moved together with it, at their new place.

    Raises:
        ConfigError: sweep.yaml was edited or damaged.
    """
    file = directory / "sweep.yaml"
    base = directory.resolve().parent.parent  # sweeps stand beside the root of the runs, whatever its name
    try:
        rows = (yaml.safe_load(file.read_text(encoding="utf-8")) or {}).get("runs") or []
        return [
            SweptRun(RunDirectory(_place(base, row["name"], row.get("directory"))), tuple(row.get("overrides") or ()))
            for row in rows
        ]
    except (yaml.YAMLError, UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{file} can't be read: {type(error).__name__}.",
            why="it says which runs the sweep is made of; it was edited or damaged.",
            fix="give the runs' own directories.",
        ) from error


def write_results(directory: Path) -> None:
    """Writes `results.csv`: a line per run with what was swept, its state and its test metrics."""
    rows = [_result(swept) for swept in read_sweep(directory)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with (directory / "results.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _result(swept: SweptRun) -> dict[str, object]:
    report = json.loads(swept.run.report_json.read_text()) if swept.run.report_json.is_file() else {}
    metrics = {
        f"{split}_{key}": value for split, values in report.get("metrics", {}).items() for key, value in values.items()
    }
    values = dict(word.split("=", 1) for word in swept.overrides)
    return {"run": swept.run.name, **values, "status": report.get("status", "none"), **metrics}


def _place(base: Path, name: str, directory: str | None) -> Path:
    given = [Path(directory)] if directory else []
    roots = [base / "runs", *sorted(path for path in base.iterdir() if path.is_dir())]
    places = [*given, *(root / name for root in roots)]
    return next((place for place in places if place.is_dir()), places[0])
