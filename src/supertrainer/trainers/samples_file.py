"""samples.jsonl: what a model wrote at each evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.files import json_text, write_atomic
from supertrainer.core.records import read_records

SAMPLES_FILE = "samples.jsonl"


def write_samples(path: Path, rows: Sequence[Mapping[str, Any]], *, step: int) -> None:
    """Adds the rows of a step to the file, in the place of those that an interrupted run wrote for it; whole or not at
    all.

    Raises:
        OSError: the disk is full or the directory isn't writable.
    """
    kept = [row for row in read_records(path).rows if row.get("step") != step]
    everything = sorted([*kept, *rows], key=lambda row: row["step"])
    write_atomic(path, "".join(f"{json_text(row)}\n" for row in everything))
