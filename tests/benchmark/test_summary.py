"""The sentences and tables that the page and the console share."""

from __future__ import annotations

from collections.abc import Callable

from supertrainer.benchmark.results import Report
from supertrainer.benchmark.summary import comparison, data_text, timing_text, verdict


def test_scored_split_stands_first(make_report: Callable[..., Report]) -> None:
    table = comparison(make_report(scored_split="validation"))
    assert [row[:2] for row in table[1:]] == [
        ["this model", "validation"],
        ["this model", "test"],
        ["majority class", "validation"],
        ["bag of words", "validation"],
    ]


def test_main_metric_stands_first(make_report: Callable[..., Report]) -> None:
    assert comparison(make_report(main_metric="loss"))[0] == ["", "split", "loss", "accuracy", "macro_f1"]


def test_verdict_compares_on_the_scored_split(make_report: Callable[..., Report]) -> None:
    report = make_report(scored_split="validation")
    assert verdict(report) == "macro_f1 +0.3975 against majority class, -0.1650 against bag of words"
    assert verdict(make_report(baselines=())) == ""
    assert verdict(make_report(main_metric="accuracy")) == ""  # no baseline has it


def test_timing_says_what_was_measured_only(make_report: Callable[..., Report]) -> None:
    assert timing_text(make_report(timing={"seconds": 3.0})) == "3.0 s"


def test_rows_without_classes(make_report: Callable[..., Report]) -> None:
    report = make_report(data={"source": "texts", "rows": {"train": 12345}}, per_class=(), confusion=())
    assert data_text(report) == "texts: train 12,345 rows"
