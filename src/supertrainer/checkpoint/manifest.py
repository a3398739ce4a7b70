"""manifest.json: what a complete step directory holds, file by file, and the checks against it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from supertrainer.core.files import fsync_path, read_json, sha256_file, write_json
from supertrainer.core.records import utc_now

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
FORMAT = 1
_STEP_NAME = re.compile(r"step-(\d{8,})")
_PICKLE_SUFFIXES = (".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth")
# State that the Trainer reads back with weights_only=True; anything else that is pickled would only be a way to run
# somebody's code (training_args.bin), or is held by safetensors and JSON as well.
_NEEDED_PICKLES = (
    *("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth"),
    *("optimizer.bin", "pytorch_model_fsdp*.bin"),  # FSDP with a full state dict
)
_HASHING_THREADS = 4  # hashing releases the interpreter; more threads than this wait for the disk


@dataclass(frozen=True)
class Checkpoint:
    """A step directory with a manifest. `extra` is what the trainer gave to `commit`.

    `skipped` has a message for each newer directory that was broken when this one was searched for.
    """

    path: Path
    step: int
    extra: Mapping[str, Any]
    size_bytes: int
    skipped: tuple[str, ...] = field(default=())


class BrokenCheckpointError(Exception):
    """A step directory isn't what its manifest says; the text says how."""


def step_name(step: int) -> str:
    """The directory's name: `step-00000400`."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step that a directory is named by; None for any name that `step_name` doesn't make."""
    match = _STEP_NAME.fullmatch(name)
    step = int(match[1]) if match else None
    return step if step is not None and step_name(step) == name else None


def seal(directory: Path, *, step: int, extra: Mapping[str, object]) -> None:
    """Makes a filled directory complete: removes needless pickles, writes the manifest, forces all to the disk.

    Raises:
        OSError: a file can't be read or written, the disk is full.
    """
    remove_needless_pickles(directory)
    paths = [path for path in _files(directory) if path.name != MANIFEST or path.parent != directory]
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:
        hashes = list(threads.map(lambda path: sha256_file(path, sync=True), paths))
    files = [
        {"path": path.relative_to(directory).as_posix(), "size": path.stat().st_size, "sha256": digest}
        for path, digest in zip(paths, hashes, strict=True)
    ]
    manifest = {
        "format": FORMAT,
        "step": step,
        "created": utc_now(),
        "files": files,
        "extra": extra,
    }
    write_json(directory / MANIFEST, manifest)
    for folder in [directory, *(path for path in directory.rglob("*") if path.is_dir())]:
        fsync_path(folder)


def remove_needless_pickles(directory: Path) -> None:
    """Deletes files that unpickle to objects and that nothing reads back."""
    for path in _files(directory):
        needed = any(fnmatch(path.name, pattern) for pattern in _NEEDED_PICKLES)
        if path.suffix in _PICKLE_SUFFIXES and not needed:
            path.unlink()
            if path.name != "training_args.bin":
                log.warning("Removed %s from the checkpoint: only safetensors and JSON are read back.", path.name)


def read_checkpoint(directory: Path, *, hashes: bool) -> Checkpoint:
    """The checkpoint in a step directory, once it is found to be complete.

    Args:
        hashes: compare the content too, not only the sizes: reads every byte.

    Raises:
        FileNotFoundError: the directory itself isn't there.
        BrokenCheckpointError: it isn't what its manifest says, or has none.
    """
    try:
        manifest = read_json(directory / MANIFEST)
        files = [(_inside(entry["path"]), int(entry["size"]), str(entry["sha256"])) for entry in manifest["files"]]
        step, form, extra = manifest["step"], manifest["format"], dict(manifest["extra"])
    except FileNotFoundError:
        _raise_if_gone(directory)
        raise BrokenCheckpointError(f"it has no {MANIFEST}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenCheckpointError(f"its {MANIFEST} can't be read ({type(error).__name__}: {error})") from error
    except OSError as error:
        raise BrokenCheckpointError(f"its {MANIFEST} can't be read ({error})") from error
    if form != FORMAT:
        raise BrokenCheckpointError(f"its format is {form!r}, this version reads {FORMAT}")
    if step != step_of(directory.name):
        raise BrokenCheckpointError(f"its {MANIFEST} is of step {step!r}")
    if not files:
        raise BrokenCheckpointError(f"its {MANIFEST} names no file")
    for name, size, _ in files:
        _compare_size(directory, name=name, size=size)
    if hashes:
        with ThreadPoolExecutor(_HASHING_THREADS) as threads:
            for problem in threads.map(lambda entry: _hash_problem(directory, name=entry[0], sha256=entry[2]), files):
                if problem:
                    _raise_if_gone(directory)
                    raise BrokenCheckpointError(problem)
    return Checkpoint(directory, step, extra, sum(size for _, size, _ in files))


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory; 0 where it isn't there."""
    total = 0
    for path in _files(directory):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def _files(directory: Path) -> list[Path]:
    def walk() -> Iterator[Path]:
        for folder, _, names in os.walk(directory):
            yield from (Path(folder) / name for name in names)

    return sorted(walk())


def _inside(name: object) -> str:
    """A run directory may come from someone else: its manifest must not point out of it."""
    path = PurePosixPath(str(name))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"the file name {name!r} points out of the directory")
    return str(path)


def _compare_size(directory: Path, *, name: str, size: int) -> None:
    try:
        found = (directory / name).stat().st_size
    except FileNotFoundError:
        _raise_if_gone(directory)
        raise BrokenCheckpointError(f"{name} is missing") from None
    except OSError as error:
        raise BrokenCheckpointError(f"{name} can't be read ({error})") from error
    if found != size:
        raise BrokenCheckpointError(f"{name} has {found:,} bytes, the {MANIFEST} says {size:,}")


def _hash_problem(directory: Path, *, name: str, sha256: str) -> str:
    try:
        return (
            "" if sha256_file(directory / name) == sha256 else f"the content of {name} has changed since it was written"
        )
    except OSError as error:
        return f"{name} can't be read ({error})"


def _raise_if_gone(directory: Path) -> None:
    """A directory that another process deletes meanwhile isn't broken."""
    if not directory.exists():
        raise FileNotFoundError(directory)
