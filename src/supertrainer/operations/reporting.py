"""The report that a run ends with."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from supertrainer.benchmark.console import print_report
from supertrainer.benchmark.report import write_report
from supertrainer.benchmark.results import Report
from supertrainer.config.spine import Config
from supertrainer.config.tasks import Task, is_pretraining, task_of
from supertrainer.core.records import read_records, utc_now
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.paths import program, relative

_ANSWERING: dict[Task, str] = {"causal_lm": "infer_llm", "image_text_to_text": "infer_mllm"}
"""The experiment that asks a model of each task that writes text."""


def finish(config: Config, open_run: OpenRun, *, shared: Mapping[str, Any], show: bool = True) -> None:
    """Writes report.json, report.html, report.md and plots, and prints the report.

    Args:
        shared: fields of `Report` that the operation knows.
        show: whether to print it.
    """
    directory = open_run.directory
    report = Report(
        name=directory.name,
        experiment=config.run.experiment,
        mode=config.run.mode,
        operation=config.operation,
        status="finished",
        directory=relative(directory.path),
        attempts=(*read_records(directory.attempts_jsonl).rows, _end_of(open_run)),
        **{"commands": _commands(config, open_run), **shared},
    )
    write_report(directory, report=report)
    if show:
        print_report(report, stream=sys.stdout)


def _end_of(open_run: OpenRun) -> dict[str, Any]:
    """How this start ends: its own line follows the report."""
    now = utc_now()
    end = {"event": "end", "attempt": open_run.attempt, "time": now, "outcome": open_run.outcome}
    return {**end, "step": open_run.step, "reason": ""}


def _commands(config: Config, open_run: OpenRun) -> dict[str, str]:
    path = shlex.quote(relative(open_run.directory.path))
    commands = {"print this report again": f"{program()} config={path}"}
    if config.operation == "train" and task_of(config) == "masked_lm":
        commands["train a classifier from it"] = (
            f"{program()} +experiment=train_bert model=bert/hub model.source={path}"
        )
    elif config.operation == "train" and is_pretraining(config):
        commands["go on with the texts of a file"] = (
            f"{program()} +experiment=infer_llm model.source={path} inferencer.plain_text=true inferencer.input=FILE"
        )
        commands["fine-tune it"] = (
            f"{program()} +experiment=train_llm model=llm/hub model.source={path} dataset.chat_template=plain "
            f"dataset.max_length={config.trainer.sequence_length} dataset.on_too_long=split"
        )
    elif config.operation == "train" and task_of(config) in _ANSWERING:
        asked = _ANSWERING[task_of(config)]
        commands["answer a file"] = f"{program()} +experiment={asked} model.source={path} inferencer.input=FILE"
    elif config.operation == "train":
        commands["label a file"] = f"{program()} +experiment=infer_bert model.source={path} inferencer.input=FILE"
    return commands
