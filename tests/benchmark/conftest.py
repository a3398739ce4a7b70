"""Findings of a run that never was, for tests of what is written about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Report, Sample, Timing
from supertrainer.metrics.scores import ClassScore

NASTY = (
    'a | b\n# `code` <script>alert("&")</script> *x* _y_ [l](http://z) ![i](j) \\ $m$ ~s~ '
    "\x1b[31mred\u202e 好看 👩\u200d💻 \t."
)


@pytest.fixture
def nasty() -> str:
    """A text with what Markdown, HTML, JSON and terminals take for their own."""
    return NASTY


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """A factory of reports: a two-class run whose named fields are replaced."""

    def make(**changes: Any) -> Report:
        fields: dict[str, Any] = {
            "name": "train_bert-1a2b3c4d",
            "experiment": "train_bert",
            "mode": "toy",
            "operation": "train",
            "status": "finished",
            "directory": "runs/train_bert-1a2b3c4d",
            "model": ModelFacts(
                source="org/encoder", parameters=1_000_000, trainable_parameters=250_000, method="lora"
            ),
            "data": DataFacts(source="reviews.csv", rows={"train": 80, "test": 20}, labels=("bad", "good")),
            "main_metric": "macro_f1",
            "metrics": {
                "validation": {"loss": 0.5, "accuracy": 0.7, "macro_f1": 0.71},
                "test": {"loss": 0.4, "accuracy": 0.8, "macro_f1": 0.8125},
            },
            "scored_split": "test",
            "definitions": {"accuracy": "rows predicted right / rows"},
            "baselines": (
                Baseline(
                    name="majority class",
                    method="always 'bad'",
                    metrics={"macro_f1": 0.3125},
                    fitted_rows=80,
                    seconds=0.1,
                ),
                Baseline(
                    name="bag of words", method="linear", metrics={"macro_f1": 0.875}, fitted_rows=80, seconds=0.2
                ),
            ),
            "per_class": (ClassScore("bad", 0.75, 0.9, 0.8182, 10), ClassScore("good", 0.875, 0.7, 0.7778, 10)),
            "confusion": ((9, 1), (3, 7)),
            "samples": (Sample(row=3, text=NASTY, true="bad", predicted="good", probability=0.987),),
            "timing": Timing(seconds=125.4, rows_per_second=43.21, tokens_per_second=5432.1, peak_memory_gib=1.25),
            "steps": 40,
            "checkpoint_steps": (20, 40),
            "best_step": 40,
            "attempts": (
                {"event": "start", "attempt": 1, "time": "10:00", "host": "a", "processes": 2, "resumed_step": None},
                {"event": "start", "attempt": 2, "time": "11:00", "host": "b", "processes": 1, "resumed_step": 20},
                {"event": "end", "attempt": 2, "time": "11:30", "outcome": "done", "step": 40, "reason": ""},
            ),
            "commands": {"run again": "supertrainer config=runs/train_bert-1a2b3c4d"},
        }
        return Report(**(fields | changes))

    return make
