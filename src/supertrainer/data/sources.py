"""Reads every split that a source holds into rows of the declared columns."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from supertrainer.core.errors import DataError
from supertrainer.data.findings import Findings
from supertrainer.data.hub import load_hub
from supertrainer.data.locate import SPLIT_NAMES, Location, SourceFile, locate
from supertrainer.data.readers import read_file
from supertrainer.data.rows import Rows, concatenated
from supertrainer.data.schema import SPLITS, DatasetConfig
from supertrainer.data.tables import RawRows, from_dataset

log = logging.getLogger(__name__)


class ToRows(Protocol):
    """Takes what a file holds as rows of the declared columns; `where` names the file in findings."""

    def __call__(self, raw: RawRows, *, where: str, findings: Findings) -> Rows: ...


def read_splits(
    config: DatasetConfig, *, wanted: Sequence[str], to_rows: ToRows, findings: Findings
) -> tuple[dict[str, Rows], dict[str, Any]]:
    """The rows of every split that the source holds, and the fingerprint of what was read.

    Args:
        wanted: the columns to read where a format can read some only.

    Faulty rows and files go to `findings`; a split one of whose files can't be read is left out.

    Raises:
        ConfigError, DataError: the source or a split's file isn't there.
    """
    location = locate(config)
    if location.root is None:
        return _read_hub(config, wanted=wanted, to_rows=to_rows, findings=findings)
    splits: dict[str, Rows] = {}
    for split, files in location.splits.items():
        parts = [
            part
            for file in files
            if (part := _read(file, config, wanted=wanted, to_rows=to_rows, findings=findings)) is not None
        ]
        if len(parts) == len(files):
            splits[split] = concatenated(parts)
    return splits, fingerprint(location)


def fingerprint(location: Location) -> dict[str, Any]:
    """{file: {size in bytes, mtime_ns, sha256}} of the files of a local source, by their names relative to it.

    A directory (`saved`, `folders`) is one entry: total size, newest change, a hash over its files' names and contents.
    """
    files = {file.name: file for split in location.splits.values() for file in split}
    return {name: _stamp(file.path) for name, file in sorted(files.items())}


def _stamp(path: Path) -> dict[str, Any]:
    digest, size, newest = hashlib.sha256(), 0, 0
    for member in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        if member != path:
            digest.update(f"{member.relative_to(path).as_posix()}\0{member.stat().st_size}\0".encode())
        with member.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        size += member.stat().st_size
        newest = max(newest, member.stat().st_mtime_ns)
    return {"size": size, "mtime_ns": newest, "sha256": digest.hexdigest()}


def _read(
    file: SourceFile, config: DatasetConfig, *, wanted: Sequence[str], to_rows: ToRows, findings: Findings
) -> Rows | None:
    try:
        return to_rows(read_file(file, config, findings=findings, wanted=wanted), where=file.name, findings=findings)
    except DataError as error:
        findings.add_error(error)
        return None


def _read_hub(
    config: DatasetConfig, *, wanted: Sequence[str], to_rows: ToRows, findings: Findings
) -> tuple[dict[str, Rows], dict[str, Any]]:
    loaded, commit = load_hub(config)
    splits: dict[str, Rows] = {}
    for split, name in _hub_names(config, tuple(loaded)).items():
        if name not in loaded:
            findings.add_problem(
                f"dataset.splits.{split}={name}: {config.source} has no such split.",
                fix=f"one of: {', '.join(loaded)}.",
            )
            continue
        try:
            raw = from_dataset(loaded[name], name=name, wanted=wanted)
            splits[split] = to_rows(raw, where=name, findings=findings)
        except DataError as error:
            findings.add_error(error)
    return splits, {config.source: {"commit": commit}}


def _hub_names(config: DatasetConfig, available: Sequence[str]) -> Mapping[str, str]:
    own: dict[str, str] = {}
    for name in available:
        if (split := SPLIT_NAMES.get(name.lower())) and split not in own:
            own[split] = name
    if config.splits is None:
        return {split: own[split] for split in SPLITS if split in own}
    given = {split: own.get(split) if name is None else name for split, name in config.splits.given().items()}
    return {split: name for split, name in given.items() if name is not None}
