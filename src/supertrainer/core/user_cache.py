"""Where things are kept that can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """supertrainer's folder in the user's cache, which need not exist; it may be deleted while nothing runs.

    Source: XDG Base Directory Specification, by which a relative XDG_CACHE_HOME doesn't count.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "supertrainer"
