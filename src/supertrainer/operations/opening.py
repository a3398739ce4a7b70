"""Opening a run directory: which one, whether it is new, goes on, has finished, or is another run's."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.benchmark.report import read_report
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.config.identity import LENGTH_KEYS, differences, identity, run_name
from supertrainer.config.secrets import redact
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.spine import Config
from supertrainer.core.attempts import Outcome, end_attempt, start_attempt
from supertrainer.core.distributed import is_main, on_main_then_broadcast, world_size
from supertrainer.core.environment import write_environment
from supertrainer.core.errors import ConfigError, DataError
from supertrainer.core.files import read_json, write_atomic, write_json
from supertrainer.core.lock import RunLock, acquire_lock
from supertrainer.core.logging import setup_logging
from supertrainer.core.run_directory import RunDirectory, next_free
from supertrainer.trainers.schema import schedule_depends_on_length

log = logging.getLogger(__name__)


@dataclass
class OpenRun:
    """A run directory that this start holds.

    Attributes:
        directory: its paths.
        attempt: number of this start, from 1.
        outcome: how it ends; whoever ends it early sets it.
        step: the last optimizer step, where there are steps.
    """

    directory: RunDirectory
    attempt: int
    outcome: Outcome = "done"
    step: int | None = None


def find_run(config: Config, *, source: Path | None) -> tuple[RunDirectory, bool]:
    """The run directory of a config, made if need be, and whether the run has finished. Call on rank 0.

    Raises:
        ConfigError: another run has the name, or a finished run would have to be made longer without `run.extend=true`.
    """
    root, name = Path(config.run.root), run_name(config)
    if config.run.fresh:
        return next_free(root, name), False
    wanted = identity(config)
    directory = _known_directory(wanted, source) or RunDirectory(root / name)
    if config.run.extend and not directory.path.exists():
        directory = _to_extend(root, wanted, source)
    if not directory.create():
        _require_same(directory, wanted, config)
    return directory, _has_finished(directory, wanted, config)


@contextmanager
def opened(directory: RunDirectory, config: Config) -> Iterator[OpenRun]:
    """Holds a run directory: lock, snapshot, log, attempt. What ends inside is written to attempts.jsonl.

    Raises:
        LaunchError: another start holds it.
    """
    held: list[RunLock] = []
    on_main_then_broadcast(lambda: held.append(acquire_lock(directory.lock_json, on_lost=_stop_writing)))
    try:
        attempt = on_main_then_broadcast(lambda: _begin(directory, config))
        setup_logging(directory.logs / "run.log", redact=redact)
        run = OpenRun(directory, attempt)
        try:
            yield run
        except BaseException as error:
            run.outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            if is_main():
                reason = redact(f"{type(error).__name__}: {error}".splitlines()[0])
                end_attempt(directory, number=attempt, outcome=run.outcome, step=run.step, reason=reason)
            raise
        if is_main():
            end_attempt(directory, number=attempt, outcome=run.outcome, step=run.step)
    finally:
        for lock in held:
            lock.release()


def _stop_writing(message: str) -> None:
    """Ends this process at once: another one may write the run now."""
    log.error("%s; this process stops", message)
    os._exit(1)


def _begin(directory: RunDirectory, config: Config) -> int:
    """Writes what a reader needs to know of this start, and returns the attempt's number."""
    tree = config.dump()
    tree["run"] |= {"fresh": False, "extend": False}  # they say how to start, not what to compute
    tree.pop("allow_targets")  # what may be imported is given anew at each start
    if config.operation != "train" or _stored_identity(directory) not in (None, identity(config)):
        directory.report_json.unlink(missing_ok=True)  # of an earlier time, or of the shorter run that is extended
    write_atomic(directory.config_yaml, as_yaml(tree))
    write_json(directory.config_json, {"identity": identity(config), "config": tree})
    write_environment(directory.environment_json)
    steps = CheckpointStore(directory.checkpoints, keep_last=None, keep_best=None).steps()
    return start_attempt(
        directory,
        command=[redact(word) for word in sys.argv],
        processes=world_size(),
        resumed_step=max(steps, default=None),
    )


def _known_directory(wanted: Mapping[str, Any], source: Path | None) -> RunDirectory | None:
    """The run directory that `config=` names, where it is the same run: it goes on there, wherever it was moved to."""
    if source is None:
        return None
    directory = RunDirectory(source if source.is_dir() else source.parent)
    return directory if _stored_identity(directory) == wanted else None


def _to_extend(root: Path, wanted: Mapping[str, Any], source: Path | None) -> RunDirectory:
    """The one run that differs from what is wanted in its length only."""
    candidates = [source if source.is_dir() else source.parent] if source is not None else sorted(root.glob("*/"))
    found = []
    for path in candidates:
        stored = _stored_identity(RunDirectory(path))
        if stored is not None and differences(stored, wanted).keys() <= set(LENGTH_KEYS):
            found.append(RunDirectory(path))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(run.name for run in found)
        raise ConfigError(
            f"run.extend=true: {names} could each be extended.", fix=f"name one: run.name={found[0].name}."
        )
    raise ConfigError(
        f"run.extend=true: {root} has no run that differs from this one in its length only.",
        fix="leave run.extend out to start one, or start from its snapshot with config=RUN_DIRECTORY.",
    )


def _stored_identity(directory: RunDirectory) -> dict[str, Any] | None:
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


def _require_same(directory: RunDirectory, wanted: Mapping[str, Any], config: Config) -> None:
    """Refuses a directory that holds another run.

    Raises:
        ConfigError: with the difference.
    """
    stored = _stored_identity(directory)
    if stored is None:
        return  # made by a start that was killed before it wrote anything
    differing = differences(stored, wanted)
    lines = "; ".join(f"{key}: {before!r} there, {after!r} here" for key, (before, after) in differing.items())
    if differing and not differing.keys() <= set(LENGTH_KEYS):
        raise ConfigError(
            f"{directory.path} holds another run ({lines}).",
            why="one directory holds one run.",
            fix="choose another run.name, or run.fresh=true to start beside it.",
        )
    if differing and not config.run.extend:
        raise ConfigError(
            f"{directory.path} holds this run at another length ({lines}).",
            fix="run.extend=true goes on with it to a greater length; run.fresh=true starts beside it.",
        )
    if differing:
        _require_extendable(directory.path, differing, config)


def _require_extendable(directory: Path, differing: Mapping[str, tuple[Any, Any]], config: Config) -> None:
    shorter = [f"{key}={after}" for key, (before, after) in differing.items() if _length(after) < _length(before)]
    if shorter and len(differing) == 1:
        raise ConfigError(
            f"run.extend=true with {shorter[0]}, less than what {directory} was trained for.",
            fix="give a greater length.",
        )
    if schedule_depends_on_length(config.trainer.training_kwargs):
        name = config.trainer.training_kwargs.get("lr_scheduler_type", "linear")
        raise ConfigError(
            f"run.extend=true: with lr_scheduler_type={name} the learning rate of {directory} depends on its length.",
            why="its steps so far are not the first steps of the longer run, so going on would not equal it.",
            fix="run.fresh=true trains the longer run from the start; constant and constant_with_warmup (with a whole "
            "number of warmup_steps) can be extended.",
        )


def _length(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _has_finished(directory: RunDirectory, wanted: Mapping[str, Any], config: Config) -> bool:
    """Whether a training is done and reported at this length. Others are done anew: what they read may change."""
    if config.operation != "train" or _stored_identity(directory) != wanted:
        return False
    written = directory.report_json.is_file() and directory.report_md.is_file() and directory.model.is_dir()
    try:
        return written and read_report(directory).status == "finished"
    except DataError as error:
        log.warning("%s", error)  # it is written again from the checkpoints
        return False
