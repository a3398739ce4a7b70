"""What is written of a run can be read back, in strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from supertrainer.benchmark.results import Report
from supertrainer.core.files import json_text


def strict(text: str) -> object:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_json_round_trip_keeps_everything(make_report: Callable[..., Report]) -> None:
    report = make_report()
    text = json_text(report.model_dump())
    assert strict(text)["samples"][0]["text"] == report.samples[0].text
    assert Report.model_validate_json(text) == report


def test_diverged_run_is_strict_json_and_reads_back_as_numbers(make_report: Callable[..., Report]) -> None:
    report = make_report(metrics={"test": {"loss": math.nan, "accuracy": 0.5, "macro_f1": math.inf}})
    text = json_text(report.model_dump())
    assert strict(text)["metrics"]["test"] == {"loss": "NaN", "accuracy": 0.5, "macro_f1": "Infinity"}
    again = Report.model_validate_json(text).metrics["test"]
    assert math.isnan(again["loss"])
    assert again["macro_f1"] == math.inf


def test_half_a_surrogate_pair_in_a_sample_reads_back(make_report: Callable[..., Report]) -> None:
    """A text that was cut between two code units: JSON can spell the half, and no reader takes it."""
    given = make_report().samples[0].model_dump() | {"text": "cut \ud83d, whole \U0001f600", "predicted": "\ude00"}
    report = make_report(samples=(given,))
    assert Report.model_validate_json(json_text(report.model_dump())) == report
    assert (report.samples[0].text, report.samples[0].predicted) == ("cut \ufffd, whole \U0001f600", "\ufffd")


def test_label_that_reads_like_a_number_stays_text(make_report: Callable[..., Report]) -> None:
    report = make_report()
    report = report.model_copy(update={"data": report.data.model_copy(update={"labels": ("NaN", "Infinity")})})
    assert Report.model_validate_json(json_text(report.model_dump())).data.labels == ("NaN", "Infinity")


def test_confusion_of_another_size_than_the_labels_is_refused(make_report: Callable[..., Report]) -> None:
    with pytest.raises(ValidationError, match="over 2 labels has 2 rows and 2 columns"):
        make_report(confusion=((9, 1, 0), (3, 7, 0), (0, 0, 0)))


def test_scored_split_without_metrics_is_refused(make_report: Callable[..., Report]) -> None:
    with pytest.raises(
        ValidationError, match=r"scored_split=dev has no metrics; there are those of \['test', 'validation'\]"
    ):
        make_report(scored_split="dev")
