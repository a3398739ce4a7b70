"""From a validated config to an exit code: a run directory is opened, its operation and those after it are done."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from supertrainer.benchmark.console import print_report
from supertrainer.benchmark.report import add_missing_page, read_report
from supertrainer.config.secrets import redact
from supertrainer.config.spine import Config
from supertrainer.config.tasks import is_pretraining
from supertrainer.core import distributed
from supertrainer.core.errors import INTERRUPTED
from supertrainer.core.logging import setup_logging
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations import check
from supertrainer.operations.hub_commits import at_recorded_commits
from supertrainer.operations.opening import find_run, find_trained, opened
from supertrainer.operations.scoring import build_dataset
from supertrainer.operations.train import require_same_data


def run(config: Config, *, source: Path | None) -> int:
    """Runs the operation of a config.

    Args:
        source: the file or run directory that the config was read from.

    Returns:
        The exit code.

    Raises:
        SupertrainerError: what stops it.
    """
    setup_logging(redact=redact)
    logging.getLogger("supertrainer").info("starting; the first imports take some seconds")
    if config.operation == "check":
        check.run(config)
        return 0
    distributed.initialize()
    try:
        if config.operation == "export":
            config = config.model_copy(update={"operation": "train"})  # the run is the training's
            trained = distributed.on_main_then_broadcast(lambda: find_trained(config, source=source))
            return _run(("export",), config, trained)
        directory, finished = distributed.on_main_then_broadcast(lambda: find_run(config, source=source))
        if finished:
            distributed.on_main_then_broadcast(lambda: _show_again(config, directory))
        names = config.then if finished else (config.operation, *config.then)
        return _run(names, config, directory) if names else 0
    finally:
        distributed.shutdown()


def _run(names: Sequence[str], config: Config, directory: RunDirectory) -> int:
    with opened(directory, config) as open_run:
        config = at_recorded_commits(config, directory)
        for name in names:
            module = "pretrain" if name == "train" and is_pretraining(config) else name
            importlib.import_module(f"supertrainer.operations.{module}").run(config, open_run)
            if open_run.outcome != "done":
                return 0 if open_run.outcome == "saved" else INTERRUPTED
    return 0


def _show_again(config: Config, directory: RunDirectory) -> None:
    """Prints the report of a run that has finished, if its data is still what it was."""
    require_same_data(directory, build_dataset(config))
    report = read_report(directory)
    add_missing_page(directory, report=report)
    print_report(report, stream=sys.stdout)
