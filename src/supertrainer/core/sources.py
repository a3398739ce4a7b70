"""Where a model or a dataset comes from: `package://`, a local path, or a Hub id."""

from __future__ import annotations

import difflib
import importlib.util
from pathlib import Path

from supertrainer.core.errors import ConfigError

PACKAGE_SCHEME = "package://"
# A dot alone says nothing: Hub ids have version numbers.
_DATA_SUFFIXES = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".arrow", ".txt", ".gz", ".zip"}
_FILE_SUFFIXES = {*_DATA_SUFFIXES, ".yaml", ".yml", ".toml", ".safetensors", ".bin", ".gguf", ".pt", ".onnx"}


def local_path(source: str) -> Path | None:
    """The local file or directory that a source names; None where it is a Hub id.

    Args:
        source: `package://MODULE/PATH` (inside an installed Python package, which is not imported), an absolute or
            relative path, or a Hub id such as `org/name`.

    Raises:
        ConfigError: the package isn't installed, or what was written as a path isn't there.
    """
    if source.startswith(PACKAGE_SCHEME):
        return _package_path(source)
    path = Path(source).expanduser()
    if path.exists():
        return path
    if _is_meant_as_path(source):
        beside = sorted(item.name for item in path.parent.iterdir()) if path.parent.is_dir() else []
        close = difflib.get_close_matches(path.name, beside, n=1)
        raise ConfigError(
            f"{source} is not there.",
            why=f"it was looked up from {Path.cwd()}.",
            fix=f"did you mean {path.parent / close[0]}?"
            if close
            else "give an existing path, or a Hub id: `org/name`.",
        )
    return None


def _is_meant_as_path(source: str) -> bool:
    """Whether a text that names nothing here can't be a Hub id, or begins with a directory that is here."""
    first, slash, rest = source.partition("/")
    return (
        source.startswith(("/", "./", "../", "~"))
        or Path(source).suffix.lower() in _FILE_SUFFIXES
        or "/" in rest
        or (slash != "" and Path(first).is_dir())
    )


def _package_path(source: str) -> Path:
    module, _, inside = source.removeprefix(PACKAGE_SCHEME).partition("/")
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"{source}: the Python package {module!r} is not installed.",
            fix="install it (`make install` brings what the shipped experiments use), or name another source.",
        )
    path = Path(next(iter(spec.submodule_search_locations))) / inside
    if not path.exists():
        raise ConfigError(
            f"{source}: the package {module!r} has no {inside!r}.", why=f"looked for {path}.", fix="check the path."
        )
    return path
