"""Paths that name several files: `texts/*.txt`, `package://MODULE/texts/*.txt`. No torch."""

from __future__ import annotations

import re
from pathlib import Path

from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path

_WILD = re.compile(r"[*?\[]")


def split_pattern(path: str) -> tuple[str, str | None]:
    """A path without its pattern, and the pattern below it; None where the path names one thing."""
    if not _WILD.search(path) or _exists(path):
        return path, None
    parts = path.split("/")
    first = next(index for index, part in enumerate(parts) if _WILD.search(part))
    return "/".join(parts[:first]) or ("/" if path.startswith("/") else "."), "/".join(parts[first:])


def matching(base: str, pattern: str) -> list[Path]:
    """The files that a pattern names below a local folder, sorted.

    Raises:
        ConfigError: the folder isn't there.
    """
    root = local_path(base)
    if root is None:
        raise ConfigError(
            f"{base} is not there.", fix="the path of a folder; of a Hub id, the pattern goes to `files`."
        )
    return sorted(path for path in root.glob(pattern) if path.is_file())


def _exists(path: str) -> bool:
    return Path(path).expanduser().exists()
