"""`build()`: the one place that turns a config node into an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supertrainer.config.strict import TargetModel
from supertrainer.config.targets import load_target


def build(node: TargetModel, *, allowed: Sequence[str] = (), **dependencies: Any) -> Any:
    """Instantiates the class that a node selects: `Class(node, **dependencies)`.

    Args:
        node: a validated config node.
        allowed: module prefixes beside supertrainer's own (`allow_targets`).
        dependencies: what the class needs beside its config.

    Raises:
        ConfigError: the target is outside the allow-list, or names no class.
    """
    return load_target(node.target, path=type(node).__name__, allowed=allowed)(node, **dependencies)
