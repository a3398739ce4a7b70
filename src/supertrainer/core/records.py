"""JSON lines that survive a kill: one whole line a write, and readers that skip a torn one."""

from __future__ import annotations

import itertools
import json
import logging
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from supertrainer.core.files import json_text, restore_non_finite, write_atomic

log = logging.getLogger(__name__)


class Records(NamedTuple):
    """What a file of JSON lines holds: its `rows` in order, and how many lines were `unreadable`."""

    rows: list[dict[str, Any]]
    unreadable: int


def utc_now() -> str:
    """The time as records write it: UTC in ISO form, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def append_record(path: Path, record: Mapping[str, object], *, sync: bool = False) -> None:
    """Appends one line of strict JSON (NaN and the infinities become strings, see `files.json_text`).

    After a line that a kill tore off, the record starts on a line of its own.

    Args:
        sync: wait until it is on the disk; a kill of the process loses nothing either way, a power cut may.

    Raises:
        OSError: the disk is full or the file isn't writable.
    """
    line = json_text(record).encode() + b"\n"
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        rest = memoryview(line)
        while rest:  # once, unless the disk fills up: then the second write says why
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_records(path: Path) -> Records:
    """Reads a file of JSON lines; torn or foreign lines are skipped, counted and said. A missing file has no rows."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return Records([], 0)
    rows: list[dict[str, Any]] = []
    unreadable = 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(restore_non_finite(row))
        else:
            unreadable += 1
    if unreadable:
        log.warning("Skipped %d unreadable line(s) of %s: a killed process tore them off.", unreadable, path)
    return Records(rows, unreadable)


def last_per_step(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per step, by rising step: what a run that was never killed would have written.

    A resumed run writes the steps after its checkpoint again. Rows of one step are merged, the last value of a key
    wins, since a training row and an evaluation row share a step. Rows without a whole-number `step` are left out.
    """
    merged: dict[int, dict[str, Any]] = {}
    for record in records:
        step = record.get("step")
        if isinstance(step, int) and not isinstance(step, bool):
            merged.setdefault(step, {}).update(record)
    return [merged[step] for step in sorted(merged)]


def abandon_after(path: Path, step: int) -> int:
    """Moves the rows of later steps from NAME.jsonl to NAME.abandoned.jsonl: the run has left their course.

    A kill in between leaves rows in both files, and none in neither.

    Returns:
        How many rows were moved.
    """
    rows = read_records(path).rows
    is_later = [isinstance(row.get("step"), int) and row["step"] > step for row in rows]
    for row in itertools.compress(rows, is_later):
        append_record(path.with_suffix(".abandoned.jsonl"), row)
    if any(is_later):
        kept = (row for row, later in zip(rows, is_later, strict=True) if not later)
        write_atomic(path, "".join(f"{json_text(row)}\n" for row in kept))
    return sum(is_later)
