"""The files of a source, and the splits that their names or folders say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.core.files import sha256_file
from supertrainer.core.sources import local_path
from supertrainer.data.locate import SPLIT_NAMES

# CoNLL-2003 calls its files eng.train, eng.testa and eng.testb.
_NAMES = {**SPLIT_NAMES, "testa": "validation", "testb": "test", "training": "train", "development": "validation"}
_NUMBERED = re.compile(r"([a-z]+?)([-_.]?\d+([-_]of[-_]\d+)?)?")
_IGNORED = re.compile(r"(readme|licen[cs]e|changelog|notice|copying)(\.\w+)*", re.IGNORECASE)


@dataclass(frozen=True)
class InputFile:
    """One file: `name` relative to the source, as messages write it; `split` where its name or folder says one."""

    path: Path
    name: str
    split: str | None
    root: Path  # the source, or the folder of the split below it

    @property
    def suffix(self) -> str:
        """The ending in lower case, `.gz` aside."""
        path = self.path.with_suffix("") if self.path.suffix.lower() == ".gz" else self.path
        return path.suffix.lower()

    @property
    def inside(self) -> Path:
        """The path below `root`: its first part is the folder of a class."""
        return self.path.relative_to(self.root)


@dataclass(frozen=True)
class Inputs:
    """The files of a source in the order of their names, and those beside them that are left alone."""

    files: tuple[InputFile, ...]
    ignored: tuple[str, ...] = ()


def find_inputs(source: str, *, files: Mapping[str, str] | None = None) -> Inputs:
    """Finds the files of a source.

    Args:
        source: a file, a directory, or `package://MODULE/PATH`.
        files: split -> file or directory below the source, where names don't tell.

    Raises:
        ConfigError, DataError: the source or a file isn't there, or it holds no files.
    """
    root = local_path(source)
    if root is None:
        raise ConfigError(f"{source} is not there.", why=f"it was looked up from {Path.cwd()}.", fix="a path.")
    base = root if root.is_dir() else root.parent
    parts: list[tuple[Path, str | None]] = [(root, None)]
    if files:
        parts = [(base / name, split) for split, name in files.items()]
        missing = [str(path) for path, _ in parts if not path.exists()]
        if missing:
            raise DataError(f"{', '.join(missing)}: not there.", fix=f"--files: names below {base}.")
    elif root.is_dir():
        parts = _parts(root)
    found = [file for path, split in parts for file in _files(path, base=base, split=split)]
    kept = tuple(file for file in found if not _IGNORED.fullmatch(file.path.name))
    if not kept:
        raise DataError(f"{source} holds no files.", fix="the file or directory with the rows.")
    named = {file.name for file in kept}
    everything = _files(root, base=base, split=None) if root.is_dir() and not files else found
    return Inputs(kept, tuple(file.name for file in everything if file.name not in named))


def split_name(name: str) -> str | None:
    """The split that a file's or folder's name says: `train`, `dev-00001`, `eng.testa`, `train.csv`."""
    for part in [name.lower().split(".")[0], name.lower().rsplit(".", 1)[-1]]:
        match = _NUMBERED.fullmatch(part)
        if match and match[1] in _NAMES:
            return _NAMES[match[1]]
    return None


def describe_files(files: Iterable[InputFile]) -> dict[str, int | str]:
    """What was read, for the report: number of files, bytes, and a SHA-256 over their names and contents."""
    digest, count, size = hashlib.sha256(), 0, 0
    for file in files:
        count += 1
        size += file.path.stat().st_size
        digest.update(f"{file.name}\0{sha256_file(file.path)}\0".encode())
    return {"count": count, "bytes": size, "sha256": digest.hexdigest()}


def _parts(root: Path) -> list[tuple[Path, str | None]]:
    members = _visible(root)
    named = [(path, split_name(path.name)) for path in members]
    if any(split for _, split in named):
        return [(path, split) for path, split in named if split]
    return [(root, None)]


def _files(path: Path, *, base: Path, split: str | None) -> Iterable[InputFile]:
    if path.is_file():
        yield InputFile(path, path.relative_to(base).as_posix(), split, path.parent)
        return
    for member in sorted(path.rglob("*")):
        below = member.relative_to(path)
        if member.is_file() and not any(part.startswith((".", "__")) for part in below.parts):
            yield InputFile(member, member.relative_to(base).as_posix(), split, path)


def _visible(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if not path.name.startswith((".", "__")))
