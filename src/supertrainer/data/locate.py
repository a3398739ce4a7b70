"""Which files hold which split of a local source. No torch: a missing file is told before heavy imports."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from supertrainer.core.errors import DataError, Problem, raise_all
from supertrainer.core.sources import local_path
from supertrainer.data.schema import SPLITS, DatasetConfig, Format

SUFFIXES: Mapping[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".yaml": "yaml",
    ".yml": "yaml",
}
SPLIT_NAMES = {"train": "train", "test": "test"} | dict.fromkeys(
    ("validation", "valid", "val", "dev", "eval"), "validation"
)
_SPLIT_FILE = re.compile(r"(?P<split>[a-z]+)([-_.]\d+([-_]of[-_]\d+)?)?", re.IGNORECASE)


@dataclass(frozen=True)
class SourceFile:
    """One file, or one directory of the formats `saved` and `folders`."""

    path: Path
    format: Format
    name: str  # relative to the source, as messages and fingerprints write it


@dataclass(frozen=True)
class Location:
    """Where the rows are. `root` is None for a Hub id; `splits` then is empty, since only the Hub knows them."""

    root: Path | None
    splits: Mapping[str, tuple[SourceFile, ...]]


def locate(config: DatasetConfig) -> Location:
    """Finds the files of every split that the source holds. A source that isn't divided is all train.

    Raises:
        ConfigError: the source isn't there.
        DataError: a split's file isn't there, or what it holds can't be told.
    """
    root = None if config.format == "hub" else local_path(config.source)
    if root is None:
        return Location(None, {})
    if config.splits is None:
        return Location(root, _named_splits(root, declared=config.format))
    problems: list[Problem] = []
    splits: dict[str, tuple[SourceFile, ...]] = {}
    for split, name in config.splits.given().items():
        if name is not None:
            splits[split] = _given_split(
                root, name, key=f"dataset.splits.{split}", declared=config.format, problems=problems
            )
        elif (found := _named_splits(root, declared=config.format)).get(split):
            splits[split] = found[split]
    raise_all(DataError, problems)
    return Location(root, splits)


def locate_file(path: str, *, declared: Format | None = None) -> tuple[SourceFile, ...]:
    """The files of an undivided source, such as the input of an inference.

    Raises:
        ConfigError, DataError: as `locate`.
    """
    root = local_path(path)
    if root is None:
        raise DataError(f"{path} is not there.", why=f"it was looked up from {Path.cwd()}.", fix="the path of a file.")
    return _source_files((root,), root=root, declared=declared)


def _named_splits(root: Path, *, declared: Format | None) -> dict[str, tuple[SourceFile, ...]]:
    """Splits as the source itself names them, in our words; all of an undivided source is `train`."""
    if root.is_file() or (root / "state.json").is_file():
        return {"train": _source_files((root,), root=root, declared=declared)}
    if (root / "dataset_dict.json").is_file():
        names = json.loads((root / "dataset_dict.json").read_text(encoding="utf-8"))["splits"]
        members = [root / name for name in names]
    else:
        members = [path for path in _visible(root) if path.is_dir() or _suffix_format(path)]
    named: dict[str, list[Path]] = {}
    for path in members:
        match = _SPLIT_FILE.fullmatch(path.name.split(".")[0])
        split = SPLIT_NAMES.get(match["split"].lower()) if match else None
        if split is not None:
            named.setdefault(split, []).append(path)
    if named:
        return {s: _source_files(named[s], root=root, declared=declared) for s in SPLITS if s in named}
    files = [path for path in members if path.is_file()]
    if len(files) > 1:
        raise DataError(
            f"{root} holds {', '.join(path.name for path in files[:5])}: none is named after a split.",
            fix=f"dataset.splits.train={files[0].name}, and validation and test likewise or as shares such as 0.1.",
        )
    return {"train": _source_files(tuple(files) or (root,), root=root, declared=declared)}


def _given_split(
    root: Path, name: str, *, key: str, declared: Format | None, problems: list[Problem]
) -> tuple[SourceFile, ...]:
    base = root if root.is_dir() else root.parent
    path = base / name
    found = [path] if path.exists() else sorted(base.glob(name)) if re.search(r"[*?\[]", name) else []
    if not found:
        near = difflib.get_close_matches(name, [p.name for p in _visible(base)], n=1, cutoff=0.75)
        problems.append(
            Problem(
                f"{key}={name}: there is no {path}.",
                fix=f"{key}={near[0]}."
                if near
                else f"a file of {base}: {', '.join(p.name for p in _visible(base)[:8])}.",
            )
        )
        return ()
    return _source_files(found, root=base, declared=declared)


def _source_files(paths: Iterable[Path], *, root: Path, declared: Format | None) -> tuple[SourceFile, ...]:
    files: list[SourceFile] = []
    for path in paths:
        format = declared or _format_of(path)
        inside = [path]
        if path.is_dir() and format not in ("saved", "folders"):
            inside = [member for member in _visible(path) if declared or _suffix_format(member) == format]
        files += [SourceFile(member, format, _name(member, root=root)) for member in inside]
    return tuple(files)


def _format_of(path: Path) -> Format:
    if path.is_file():
        format = "text" if path.suffix.lower() == ".txt" else _suffix_format(path)
        if format is None:
            raise DataError(
                f"{path.name}: what the file holds can't be told from its name.",
                fix=f"dataset.format=csv, say. Known endings: {' '.join(SUFFIXES)} (text formats also with .gz).",
            )
        return format
    if (path / "state.json").is_file() or (path / "dataset_dict.json").is_file():
        return "saved"
    for member in _visible(path):
        if member.is_file() and (format := _suffix_format(member)):
            return format
        if member.is_dir() and next(member.rglob("*.txt"), None):
            return "folders"
    raise DataError(
        f"{path} holds no rows: neither {' '.join(SUFFIXES)} files, nor a saved `datasets` directory, "
        "nor a folder of .txt files for each label.",
        fix="dataset.source: the file or directory with the rows.",
    )


def _suffix_format(path: Path) -> Format | None:
    return SUFFIXES.get((path.with_suffix("") if _is_gz(path) else path).suffix.lower())


def _is_gz(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _visible(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith((".", "_")))


def _name(path: Path, *, root: Path) -> str:
    base = root if root.is_dir() else root.parent
    if path == base:
        return path.name
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else str(path)
