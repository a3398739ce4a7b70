"""`operation=verify`: what is promised to be exact, held against this config's own model, data and trainer."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from supertrainer.config.spine import Config
from supertrainer.config.tasks import is_pretraining, task_of
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.files import write_json
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.paths import relative
from supertrainer.operations.verification.padding import check_padding
from supertrainer.operations.verification.pretraining import table as table_of_pretraining
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.reduction import BATCH
from supertrainer.operations.verification.reloading import check_reload
from supertrainer.operations.verification.resuming import check_resumes
from supertrainer.operations.verification.rows import Row, conclusion, table
from supertrainer.operations.verification.splitting import check_own_optimizer, check_splits
from supertrainer.operations.verification.workbench import Workbench

log = logging.getLogger(__name__)

WORK_FOLDER = ".verify"  # of the run directory: runs and checkpoints that are removed again
_CHATTY = tuple(f"supertrainer.{name}" for name in ("trainers", "models", "data", "checkpoint", "core.records"))
Found: TypeAlias = tuple[list[Row], dict[str, Any], list[str]]
"""The table, what was verified, and that in words."""

_OF_INT8 = "int8 rounds a row by what else is in its batch"


def run(config: Config, open_run: OpenRun) -> None:
    """Runs every check, prints the table and writes verify.json.

    Raises:
        ConfigError: what can't be trained as configured.
        DataError: faulty rows, or too few of them.
        SupertrainerError: a check breaks.
    """
    started = time.monotonic()
    work = open_run.directory.path / WORK_FOLDER
    shutil.rmtree(work, ignore_errors=True)  # a killed verification left it
    try:
        with _quiet():
            rows, facts, setting = (_of_pretraining if is_pretraining(config) else _of_fine_tuning)(config, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    broken = [row.check for row in rows if row.verdict == "BREAKS"]
    facts |= {"seconds": time.monotonic() - started}
    file = open_run.directory.verify_json
    write_json(file, {"verdict": "breaks" if broken else "holds", **facts, "checks": [vars(row) for row in rows]})
    print("\n".join([*setting, "", *table(rows), "", f"{conclusion(rows)}  ·  {relative(file)}"]), flush=True)
    if broken:
        raise SupertrainerError(
            f"{len(broken)} of {len(rows)} checks break: {'; '.join(broken)}.",
            why="what is trained with this config depends on more than its config, data and seed.",
            fix="if the model, dataset or trainer is a class of your own, look there; else it is a bug: report it with "
            "verify.json and environment.json.",
        )


def _of_fine_tuning(config: Config, work: Path) -> Found:
    bench = Workbench(config, directory=work)
    rows, facts = list(_checks(bench)), _facts(bench)
    return rows, facts, list(_setting(facts))


def _of_pretraining(config: Config, work: Path) -> Found:
    bench = PretrainWorkbench(config, directory=work)
    return (
        list(table_of_pretraining.checks(bench)),
        table_of_pretraining.facts(bench),
        list(table_of_pretraining.setting(bench)),
    )


def _checks(bench: Workbench) -> Iterator[Row]:
    quantization = bench.config.trainer.bitsandbytes_kwargs or {}
    unpromised = _OF_INT8 if quantization.get("load_in_8bit") else ""
    _tell("padding")
    yield from check_padding(*bench.untrained, unpromised=unpromised)
    _tell("a run in whole batches")
    with bench.trained("reference", bench.sgd) as whole:
        _tell("saving and reading back")
        yield from check_reload(whole)
        _tell("micro-batches and processes")
        yield from check_splits(bench, whole, unpromised=unpromised)
    yield from check_own_optimizer(bench)
    _tell("stopping, going on, seeds")
    yield from check_resumes(bench)


def _tell(what: str) -> None:
    log.info("verify: %s", what)


def _facts(bench: Workbench) -> dict[str, Any]:
    trainer = bench.config.trainer
    return {
        "model": bench.config.model.source or f"{bench.config.model.config['model_type']} from scratch",
        "task": task_of(bench.config),
        "adapter": trainer.peft_kwargs is not None,
        "quantized": trainer.bitsandbytes_kwargs is not None,
        "rows": bench.untrained[0].train_rows,
        "rows_of_a_step": BATCH,
        "max_length": bench.config.dataset.max_length,
    }


def _setting(facts: dict[str, Any]) -> Iterator[str]:
    """What was reduced, and what was left as it is."""
    length = facts["max_length"]
    limit = f" of at most {length} tokens" if length else ""
    yield f"verified on {facts['rows']} training rows{limit}, in steps of {BATCH}, in float32"
    yield "without dropout, by plain SGD; resumes and seeds with the config's own dropout, optimizer and schedule"


@contextmanager
def _quiet() -> Iterator[None]:
    """A dozen small runs would say the same a dozen times."""
    loggers = [logging.getLogger(name) for name in _CHATTY]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
