"""How what was written is used."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from supertrainer.data.prepare.options import PrepareOptions
from supertrainer.data.prepare.report import PrepareReport


def dataset_overrides(options: PrepareOptions) -> list[str]:
    """The words of a command that make what was written the dataset of an experiment."""
    return ["dataset=bert/jsonl", f"dataset.source={options.out}", "dataset.splits=null"]


def next_step(report: PrepareReport, options: PrepareOptions) -> Iterator[str]:
    """What was written where, and the command that takes it."""
    if options.dry_run:
        yield "A dry run: nothing was written."
        return
    yield f"Written to {options.out}: {', '.join(f'{split}.{options.format}' for split in report.splits)}, report.md"
    if report.task == "single_label":
        words = [*dataset_overrides(options), *_pair(report)]
        yield f"python src/supertrainer/main.py +experiment=train_bert {shlex.join(words)}"


def _pair(report: PrepareReport) -> list[str]:
    return ["dataset.columns.text_pair=text_pair"] if "text_pair" in report.columns else []
