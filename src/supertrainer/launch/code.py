"""The code that a job runs is that of its submit: a copy of the package, named by its content. No torch.

A job waits for hours in the queue; by then the checkout may hold something else.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from supertrainer.config.groups import config_directory
from supertrainer.core.environment import CODE_FILE, code_version
from supertrainer.core.errors import LaunchError

_PACKAGE = Path(__file__).resolve().parents[1]
_PLUGINS = _PACKAGE.parent / "hydra_plugins" / "supertrainer_launcher"


def code_directory(root: Path) -> Path:
    """Where the copy of the running code is, or would be, below the root of the runs."""
    return root.resolve() / ".code" / _digest()


def copy_code(root: Path) -> Path:
    """Makes the copy, unless it is there, and returns the directory that goes first on PYTHONPATH.

    Raises:
        LaunchError: it can't be written.
    """
    directory = code_directory(root)
    if directory.is_dir():
        return directory
    aside = directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.tmp")
    try:
        for source, target in _files():
            (aside / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, aside / target)
        origin = {"program": _program(), "version": code_version()}
        (aside / CODE_FILE).write_text(json.dumps(origin))
        try:
            aside.rename(directory)
        except OSError:
            if not directory.is_dir():  # another submit was first
                raise
    except OSError as error:
        raise LaunchError(
            f"the code can't be copied to {directory}: {error}.",
            why="a job runs the code that was submitted, whatever the checkout holds when it starts.",
            fix="free some space, or choose another run.root.",
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return directory


@functools.cache  # a sweep asks for every run
def _digest() -> str:
    digest = hashlib.sha256()
    for source, target in _files():
        digest.update(f"{target}\0".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _program() -> str:
    """The command that a user of this code types: reports of jobs name it, not the copy."""
    checkout = config_directory().parent != _PACKAGE
    return str(_PACKAGE / "main.py") if checkout else "supertrainer"


def _files() -> Iterator[tuple[Path, str]]:
    """Every file of the package with its place in the copy, in a fixed order."""
    for base, place in ((_PACKAGE, "supertrainer"), (_PLUGINS, "hydra_plugins/supertrainer_launcher")):
        yield from _below(base, place, skip=config_directory())
    yield from _below(config_directory(), "supertrainer/configs", skip=None)


def _below(base: Path, place: str, *, skip: Path | None) -> Iterator[tuple[Path, str]]:
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and Path(folder, name) != skip)
        for name in sorted(names):
            if not name.endswith(".pyc"):
                path = Path(folder, name)
                yield path, f"{place}/{path.relative_to(base).as_posix()}"
