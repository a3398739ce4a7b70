"""The first sections: the score that counts beside the baselines, and what a reader should know."""

from __future__ import annotations

import math

from supertrainer.benchmark.display import score_text
from supertrainer.benchmark.page import charts
from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import NOTHING, Section, folded, join, name, paragraph, table, tag, text
from supertrainer.benchmark.summary import comparison, verdict
from supertrainer.metrics.schema import LOWER_IS_BETTER

OURS = "this model"


def result(findings: Findings) -> Section | None:
    """The main scalar in large, a bar for it and each baseline, and the table of all."""
    report = findings.report
    rows = comparison(report)
    if len(rows) == 1:
        return None
    split = report.scored_split or next(iter(report.metrics))
    value = report.metrics[split].get(report.main_metric)
    parts = []
    if value is not None:
        said = tag("span", {}, text(report.main_metric), text(f" on {split}"))
        parts.append(tag("p", {"class": "hero"}, tag("b", {}, text(score_text(value))), said))
        compared = {OURS: value} | {one.name: one.metrics.get(report.main_metric, math.nan) for one in report.baselines}
        drawn = {who: score for who, score in compared.items() if math.isfinite(score) and score >= 0}
        if len(drawn) > 1 and OURS in drawn:
            less = ": less is better" if report.main_metric in LOWER_IS_BETTER else ""
            parts.append(charts.bars(drawn, title=f"{report.main_metric} beside the baselines{less}", strong=OURS))
    if difference := verdict(report):
        parts.append(paragraph(text(f"{difference}.")))
    parts.append(table(rows, numbers_from=2))
    methods = [tag("li", {}, tag("b", {}, name(one.name)), text(f": {one.method}")) for one in report.baselines]
    parts.append(tag("ul", {}, *methods) if methods else NOTHING)
    if report.definitions:
        meanings = [["scalar", "definition"], *([key, words] for key, words in report.definitions.items())]
        parts.append(folded("What each scalar means", table(meanings)))
    return Section("result", "Result", join(parts))


def notes(findings: Findings) -> Section | None:
    """Truncated texts, dropped rows, skipped checkpoints."""
    if not findings.report.notes:
        return None
    return Section("notes", "Notes", tag("ul", {}, *(tag("li", {}, text(note)) for note in findings.report.notes)))
