"""How messages name a path and this program."""

from __future__ import annotations

import sys
from pathlib import Path

from supertrainer.core.environment import copied_from


def relative(path: Path) -> str:
    """A path as a command here would name it."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def program() -> str:
    """How this program was started, for commands that a user copies."""
    origin = copied_from()
    if origin is None:
        script = Path(sys.argv[0])
        return f"python {script}" if script.suffix == ".py" else script.name
    script = Path(origin["program"])
    return f"python {relative(script)}" if script.suffix == ".py" else script.name
