"""How what was written is used."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from supertrainer.data.prepare.options import PrepareOptions
from supertrainer.data.prepare.report import PrepareReport

# task -> what the config of an encoder is told besides the source.
_ENCODERS: Mapping[str, tuple[str, ...]] = {
    "sequence_classification": (),
    "multi_label": ("model.task=multi_label", "metric=multi_label", "dataset.columns.label=labels"),
    "regression": ("model.task=regression", "metric=regression"),
    "token_classification": (
        "model.task=token_classification",
        "metric=tokens",
        "dataset.columns.text=tokens",
        "dataset.columns.label=tags",
    ),
    "text": ("model.task=masked_lm", "metric=masked_lm"),
}


def overrides(report: PrepareReport, options: PrepareOptions) -> list[str]:
    """The words of a command that make what was written the dataset of an experiment; none for tasks to come."""
    if report.task not in _ENCODERS:
        return []
    pair = ["dataset.columns.text_pair=text_pair"] if "text_pair" in report.columns else []
    splits = "null" if len(report.splits) > 1 else "{train: null, validation: 0.1, test: 0.1}"
    return [
        "dataset=bert/jsonl",
        f"dataset.source={options.out}",
        f"dataset.splits={splits}",
        *_ENCODERS[report.task],
        *pair,
    ]


def next_step(report: PrepareReport, options: PrepareOptions) -> Iterator[str]:
    """What was written where, and the command that takes it."""
    if options.dry_run:
        yield "A dry run: nothing was written."
        return
    yield f"Written to {options.out}: {', '.join(f'{split}.{options.format}' for split in report.splits)}, report.md"
    if words := overrides(report, options):
        yield f"python src/supertrainer/main.py +experiment=train_bert {shlex.join(words)}"
