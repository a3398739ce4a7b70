"""How messages name a path and this program."""

from __future__ import annotations

import sys
from pathlib import Path


def relative(path: Path) -> str:
    """A path as a command here would name it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def program() -> str:
    """How this program was started, for commands that a user copies."""
    script = Path(sys.argv[0])
    return f"python {script}" if script.suffix == ".py" else script.name
