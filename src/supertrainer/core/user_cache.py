"""Where things are kept that can be made again."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from supertrainer.core.files import fsync_path

_ABANDONED_SECONDS = 6 * 3600.0  # nothing takes so long to make: what is left aside is of a process that was killed


def user_cache() -> Path:
    """supertrainer's folder in the user's cache, which need not exist; it may be deleted while nothing runs.

    Source: XDG Base Directory Specification, by which a relative XDG_CACHE_HOME doesn't count.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "supertrainer"


def made_once(directory: Path, *, fill: Callable[[Path], None]) -> Path:
    """The directory, made where it isn't there yet: whole or not at all.

    Any number of processes may ask at once: each fills a directory aside, and the first to rename has made it.

    Args:
        directory: where it is kept.
        fill: writes the files into the directory that it is given.
    """
    if directory.is_dir():
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    for left in directory.parent.glob(".*.incoming"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left)
    aside = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.incoming")
    aside.mkdir()
    try:
        fill(aside)
        for written in aside.iterdir():
            fsync_path(written)
        with contextlib.suppress(OSError):  # another process was first: what it made is the same
            os.rename(aside, directory)
        fsync_path(directory.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return directory
