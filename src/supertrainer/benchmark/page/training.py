"""Sections of a training: its curves, and its starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from supertrainer.benchmark.page import charts
from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import Html, Section, join, paragraph, table, tag, text
from supertrainer.benchmark.page.scales import Point
from supertrainer.benchmark.summary import attempts_table, training_text

MANY = 60  # points from which a running mean is easier to read


def curves(findings: Findings) -> Section | None:
    """Loss, the main scalar of the evaluations, learning rate and gradient norm over the steps."""
    records, report = findings.records, findings.report
    loss, evaluated = series(records, key="loss"), series(records, key="eval_loss")
    score = series(records, key=f"eval_{report.main_metric}") if report.main_metric != "loss" else []
    drawn: list[Html] = []
    if loss or evaluated:
        marked = [charts.Series("evaluation", evaluated, "marked", 1)] if evaluated else []
        drawn.append(charts.lines([*_noisy("training", loss), *marked], title="Loss"))
    if score:
        drawn.append(charts.lines([charts.Series("evaluation", score, "marked", 1)], title=report.main_metric))
    if rate := series(records, key="lr"):
        drawn.append(charts.lines([charts.Series("rate", rate, colour=2)], title="Learning rate", from_zero=True))
    if norm := series(records, key="grad_norm"):
        drawn.append(charts.lines(_noisy("norm", norm), title="Gradient norm", from_zero=True))
    if not drawn:
        return None
    words = [paragraph(text(training_text(report)))]
    if said := _not_finite(records):
        words.append(tag("p", {"class": "warning"}, text(said)))
    return Section("training", "Training", join([*words, tag("div", {"class": "charts"}, *drawn)]))


def attempts(findings: Findings) -> Section | None:
    """A line for each start of the run."""
    if not findings.report.attempts:
        return None
    return Section("attempts", "Starts", table(attempts_table(findings.report)))


def series(records: Sequence[Mapping[str, Any]], *, key: str) -> list[Point]:
    """(step, value) of each record with a finite number under `key`."""
    return [
        (float(row["step"]), float(row[key])) for row in records if _is_number(row.get(key)) and math.isfinite(row[key])
    ]


def running_mean(points: Sequence[Point]) -> list[Point]:
    """The mean over a centred window of a twentieth of the points, cut off at both ends: no lag behind the curve."""
    sums = [0.0, *itertools.accumulate(value for _, value in points)]
    half, size = max(len(points) // 40, 1), len(points)
    windows = [(max(place - half, 0), min(place + half + 1, size)) for place in range(size)]
    means = [(sums[end] - sums[start]) / (end - start) for start, end in windows]
    return [(step, mean) for (step, _), mean in zip(points, means, strict=True)]


def _noisy(what: str, points: Sequence[Point]) -> list[charts.Series]:
    """A curve; of many points it stands faint behind its running mean."""
    if len(points) > MANY:
        return [charts.Series(what, points, "faint"), charts.Series("running mean", running_mean(points))]
    return [charts.Series(what, points)] if points else []


def _not_finite(records: Sequence[Mapping[str, Any]]) -> str:
    """Says where the loss was no number, which a curve can't show."""
    logged = [(row["step"], row["loss"]) for row in records if _is_number(row.get("loss"))]
    steps = [step for step, loss in logged if not math.isfinite(loss)]
    if not steps:
        return ""
    return f"The loss was not finite at {len(steps):,} of {len(logged):,} logged steps, first at step {steps[0]:,}."


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
