"""What a run directory says of the run it holds: its config and its identity. No torch."""

from __future__ import annotations

from typing import Any

from supertrainer.config.identity import identity
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError
from supertrainer.core.files import read_json, write_atomic, write_json
from supertrainer.core.run_directory import RunDirectory


def write_snapshot(directory: RunDirectory, config: Config) -> None:
    """Writes config.yaml and config.json, and takes away a report that isn't this run's."""
    tree = config.dump()
    tree["run"] |= {"fresh": False, "extend": False}  # they say how to start, not what to compute
    tree.pop("allow_targets")  # what may be imported is given anew at each start
    if config.operation != "train" or stored_identity(directory) not in (None, identity(config)):
        directory.report_json.unlink(missing_ok=True)  # of an earlier time, or of the shorter run that is extended
    write_atomic(directory.config_yaml, as_yaml(tree))
    write_json(directory.config_json, {"identity": identity(config), "config": tree})


def stored_identity(directory: RunDirectory) -> dict[str, Any] | None:
    """The identity of the run that a directory holds; None where it holds none yet.

    Raises:
        ConfigError: config.json was edited or damaged.
    """
    if not directory.config_json.is_file():
        return None
    try:
        stored: dict[str, Any] = read_json(directory.config_json)["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{directory.config_json} can't be read: {type(error).__name__}.",
            why="it says which run the directory holds; it was edited or damaged.",
            fix="put it back, or run.fresh=true to start beside it.",
        ) from error
    return stored
