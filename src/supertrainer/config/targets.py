"""`_target_`: which class a node selects, where its schema is, and what may be named at all."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Sequence
from types import ModuleType

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.strict import TargetModel
from supertrainer.core.errors import ConfigError

OWN_PREFIX = "supertrainer"


def schema_class(target: str, *, path: str, allowed: Sequence[str]) -> type[TargetModel]:
    """The schema class of a target, without importing the target's own module.

    Args:
        target: `package.module.Class`.
        path: dotted path of the node, for messages.
        allowed: module prefixes beside supertrainer's own.

    Raises:
        ConfigError: the target lies outside the allow-list, or names nothing.
    """
    require_allowed(target, path=path, allowed=allowed)
    module, _, name = target.rpartition(".")
    package = module.rpartition(".")[0]
    schema = _import_schema(f"{package}.schema") if package else None
    if schema is None:
        raise ConfigError(
            f"{path}._target_={target}: {package or module}.schema is not there.",
            why="a class's config class stands in the torch-free `schema` module of its package.",
            fix="write package.module.Class as the shipped configs do.",
        )
    known = {
        found.removesuffix("Config")
        for found, value in vars(schema).items()
        if inspect.isclass(value) and issubclass(value, TargetModel) and found.endswith("Config")
    }
    if name not in known:
        raise ConfigError(
            f"{path}._target_={target}: there is no class {name!r} with a {name}Config in {package}.schema.",
            fix=did_you_mean(name, known),
        )
    found_class: type[TargetModel] = vars(schema)[f"{name}Config"]
    return found_class


def load_target(target: str, *, path: str, allowed: Sequence[str]) -> type:
    """Imports the class that a target names, and checks what was found, not only the name.

    Raises:
        ConfigError: outside the allow-list by name or by where the object was defined, absent, or not a class.
    """
    require_allowed(target, path=path, allowed=allowed)
    module, _, name = target.rpartition(".")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}._target_={target}: {error}.", fix="write package.module.Class.") from error
    found = vars(loaded).get(name)
    if not inspect.isclass(found):
        raise ConfigError(
            f"{path}._target_={target}: {module} defines no class {name!r}.", fix=did_you_mean(name, vars(loaded))
        )
    require_allowed(f"{found.__module__}.{found.__qualname__}", path=path, allowed=allowed)
    return found


def require_allowed(target: str, *, path: str, allowed: Sequence[str]) -> None:
    """Refuses a target outside the allow-list.

    Raises:
        ConfigError: it isn't below supertrainer or one of `allowed`, or isn't a dotted name of plain identifiers.
    """
    parts = target.split(".")
    dotted = len(parts) >= 3 and all(part.isidentifier() and not part.startswith("_") for part in parts)
    inside = any(target.startswith(f"{prefix.rstrip('.')}.") for prefix in (OWN_PREFIX, *allowed))
    if not (dotted and inside):
        raise ConfigError(
            f"{path}._target_={target}: not in the allow-list.",
            why=f"naming a class runs its code, so it must be one below {', '.join((OWN_PREFIX, *allowed))}.",
            fix=f"allow_targets=[{parts[0]}] on the command line or in your own file, if you trust that code.",
        )


def _import_schema(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise
