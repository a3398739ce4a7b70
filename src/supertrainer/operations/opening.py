"""Opening a run directory: which one, whether it is new, goes on, has finished, or is another run's."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.benchmark.report import read_report
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.config.identity import LENGTH_KEYS, differences, identity, run_name
from supertrainer.config.secrets import redact
from supertrainer.config.spine import Config
from supertrainer.core.attempts import Outcome, end_attempt, start_attempt
from supertrainer.core.distributed import is_main, on_main_then_broadcast, world_size
from supertrainer.core.environment import write_environment
from supertrainer.core.errors import ConfigError, DataError, SupertrainerError
from supertrainer.core.job import StopRequested, signals_held
from supertrainer.core.lock import RunLock, acquire_lock
from supertrainer.core.logging import setup_logging
from supertrainer.core.run_directory import RunDirectory, next_free
from supertrainer.launch.jobs import is_running
from supertrainer.operations.progress import require_progress
from supertrainer.operations.snapshot import stored_identity, write_snapshot
from supertrainer.operations.untrained import nothing_trained, waits_for_a_job

log = logging.getLogger(__name__)


@dataclass
class OpenRun:
    """A run directory that this start holds.

    Attributes:
        directory: its paths.
        attempt: number of this start, from 1.
        outcome: how it ends; whoever ends it early sets it.
        step: the last optimizer step, where there are steps.
        reason: why it ended so: an error's first line, or a signal's name.
    """

    directory: RunDirectory
    attempt: int
    outcome: Outcome = "done"
    step: int | None = None
    reason: str = ""


def find_run(config: Config, *, source: Path | None) -> tuple[RunDirectory, bool]:
    """The run directory of a config, made if need be, and whether the run has finished. Call on rank 0.

    Raises:
        ConfigError: another run has the name, or a finished run would have to be made longer without `run.extend=true`.
    """
    root, name = Path(config.run.root), run_name(config)
    if config.run.fresh:
        return next_free(root, name), False
    wanted = identity(config)
    directory = locate(config, source=source)
    if config.run.extend and not directory.path.exists():
        directory = _to_extend(root, wanted, source)
    if not directory.create():
        require_same(directory, config)
    return directory, _has_finished(directory, wanted, config)


def find_trained(config: Config, *, source: Path | None) -> RunDirectory:
    """The directory of a run that has finished. Call on rank 0.

    Args:
        config: the one that it was trained with, `operation=train`.
        source: the file or run directory that the config was read from.

    Raises:
        ConfigError: there is none.
    """
    directory = locate(config, source=source)
    if not directory.path.is_dir() or not _has_finished(directory, identity(config), config):
        raise ConfigError(
            f"{directory.path} holds no run of this config that has finished.",
            why="operation=export takes what a training has written.",
            fix="config=runs/NAME names a run that has; or train first, with then=[export].",
        )
    return directory


def locate(config: Config, *, source: Path | None) -> RunDirectory:
    """Where a config's run is, or would be; nothing is made."""
    return _known_directory(identity(config), source) or RunDirectory(Path(config.run.root) / run_name(config))


@contextmanager
def opened(directory: RunDirectory, config: Config) -> Iterator[OpenRun]:
    """Holds a run directory: lock, snapshot, log, attempt. What ends inside is written to attempts.jsonl.

    Raises:
        LaunchError: another start holds it.
    """
    held: list[RunLock] = []
    on_main_then_broadcast(
        lambda: held.append(acquire_lock(directory.lock_json, on_lost=_stop_writing, job_state=is_running))
    )
    try:
        with ExitStack() as uninterrupted:
            uninterrupted.enter_context(signals_held())
            run = OpenRun(directory, on_main_then_broadcast(lambda: _begin(directory, config)))
            try:
                uninterrupted.close()  # from here on whatever ends the attempt is written down
                setup_logging(directory.logs / "run.log", redact=redact)
                yield run
            except BaseException as error:
                run.outcome, run.reason = _ending(error)
                raise
            finally:
                if is_main():
                    end_attempt(directory, number=run.attempt, outcome=run.outcome, step=run.step, reason=run.reason)
    finally:
        for lock in held:
            lock.release()


def _ending(error: BaseException) -> tuple[Outcome, str]:
    if isinstance(error, StopRequested):
        return "saved", error.signal
    outcome: Outcome = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
    text = str(error) if isinstance(error, SupertrainerError) else f"{type(error).__name__}: {error}"
    return outcome, redact(text.splitlines()[0])


def _stop_writing(message: str) -> None:
    """Ends this process at once: another one may write the run now."""
    log.error("%s; this process stops", message)
    os._exit(1)


def _begin(directory: RunDirectory, config: Config) -> int:
    """Writes what a reader needs to know of this start, and returns the attempt's number.

    Raises:
        ConfigError: since the directory was found, another run has begun to train in it.
        LaunchError: jobs start again and again without getting anywhere.
    """
    require_same(directory, config)
    if nothing_trained(directory) and stored_identity(directory) not in (None, identity(config)):
        log.info("nothing was trained in %s yet: it takes this config", directory.path)
    steps = CheckpointStore(directory.checkpoints, keep_last=None, keep_best=None).steps()
    newest_step = max(steps, default=None)
    require_progress(directory, newest_step=newest_step, allowed=config.cluster.max_attempts_without_progress)
    write_snapshot(directory, config)
    write_environment(directory.environment_json)
    return start_attempt(
        directory, command=[redact(word) for word in sys.argv], processes=world_size(), resumed_step=newest_step
    )


def _known_directory(wanted: Mapping[str, Any], source: Path | None) -> RunDirectory | None:
    """The run directory that `config=` names, where it is the same run: it goes on there, wherever it was moved to."""
    if source is None:
        return None
    directory = RunDirectory(source if source.is_dir() else source.parent)
    return directory if stored_identity(directory) == wanted else None


def _to_extend(root: Path, wanted: Mapping[str, Any], source: Path | None) -> RunDirectory:
    """The one run that differs from what is wanted in its length only."""
    candidates = [source if source.is_dir() else source.parent] if source is not None else sorted(root.glob("*/"))
    found = []
    for path in candidates:
        stored = stored_identity(RunDirectory(path))
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


def require_same(directory: RunDirectory, config: Config) -> None:
    """Refuses a directory that holds another run. One in which nothing was trained yet holds none.

    Raises:
        ConfigError: with the difference.
    """
    stored, wanted = stored_identity(directory), identity(config)
    if stored is None:
        return  # made by a start that was killed before it wrote anything
    differing = differences(stored, wanted)
    if differing and _binds_nobody(directory, stored, config):
        return
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


def _binds_nobody(directory: RunDirectory, stored: Mapping[str, Any], config: Config) -> bool:
    """Whether a start ended there before it trained anything, so that its config may be changed."""
    trainings = config.operation == stored.get("operation") == "train"
    return trainings and nothing_trained(directory) and not waits_for_a_job(directory)


def _require_extendable(directory: Path, differing: Mapping[str, tuple[Any, Any]], config: Config) -> None:
    shorter = [f"{key}={after}" for key, (before, after) in differing.items() if _length(after) < _length(before)]
    if shorter and len(differing) == 1:
        raise ConfigError(
            f"run.extend=true with {shorter[0]}, less than what {directory} was trained for.",
            fix="give a greater length.",
        )
    schedule, extendable = config.trainer.schedule_by_length()
    if schedule is not None:
        raise ConfigError(
            f"run.extend=true: with {schedule} the learning rate of {directory} depends on its length.",
            why="its steps so far are not the first steps of the longer run, so going on would not equal it.",
            fix=f"run.fresh=true trains the longer run from the start; {extendable} can be extended.",
        )


def _length(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def _has_finished(directory: RunDirectory, wanted: Mapping[str, Any], config: Config) -> bool:
    """Whether a training is done and reported at this length. Others are done anew: what they read may change."""
    if config.operation != "train" or stored_identity(directory) != wanted:
        return False
    written = directory.report_json.is_file() and directory.report_md.is_file() and directory.model.is_dir()
    try:
        return written and read_report(directory).status == "finished"
    except DataError as error:
        log.warning("%s", error)  # it is written again from the checkpoints
        return False
