"""Sections of kinds of rows: the scores of each class and which are taken for which, and the scores of each type."""

from __future__ import annotations

from supertrainer.benchmark.display import score_text
from supertrainer.benchmark.page import charts
from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import (
    Html,
    Section,
    data_table,
    folded,
    join,
    name,
    paragraph,
    table,
    tag,
    text,
)
from supertrainer.benchmark.page.matrix import confused, matrix, most_confused
from supertrainer.benchmark.summary import type_table
from supertrainer.metrics.scores import ClassScore

SHOWN_CLASSES = 40  # whose scores stand open, and that a matrix shows one by one
MOST_CLASSES = 1_000  # of a page; report.json has all
CONFUSIONS = 15


def classes(findings: Findings) -> Section | None:
    """Precision, recall and F1 as bars with numbers, and the rows of each class."""
    report = findings.report
    scores = report.per_class
    if not scores:
        return None
    title = f"Classes ({report.scored_split})"
    if len(scores) <= SHOWN_CLASSES:
        return Section("classes", title, _bars(scores))
    worst = sorted(scores, key=lambda score: score.f1)[:SHOWN_CLASSES]
    words = paragraph(text(f"The {len(worst)} classes of least F1, of {len(scores):,}."))
    rest = f"The first {MOST_CLASSES:,} classes" if len(scores) > MOST_CLASSES else f"All {len(scores):,} classes"
    return Section("classes", title, join([words, _bars(worst), folded(rest, _bars(scores[:MOST_CLASSES]))]))


def types(findings: Findings) -> Section | None:
    """The scores of each type of rows, beside the baselines."""
    report = findings.report
    if not report.per_type:
        return None
    return Section("types", f"Types ({report.scored_split})", table(type_table(report), numbers_from=1))


def confusion(findings: Findings) -> Section | None:
    """The matrix, and the pairs of classes that are taken for each other most often."""
    report = findings.report
    if not report.confusion:
        return None
    counts, labels = most_confused(report.confusion, labels=report.data.labels, most=SHOWN_CLASSES)
    words = "Rows are true classes, columns predictions; the colour is the share of the true class, given in percent."
    if len(labels) < len(report.data.labels):
        words += f" The {SHOWN_CLASSES} classes with the most wrong rows stand alone, of {len(report.data.labels):,}."
    parts = [paragraph(text(words)), matrix(counts, labels=labels)]
    pairs = confused(report.confusion, labels=report.data.labels)
    if len(report.data.labels) > 2 and pairs:
        shown = [[pair.true, pair.predicted, f"{pair.rows:,}", f"{pair.share:.1%}"] for pair in pairs[:CONFUSIONS]]
        header = ["true", "predicted", "rows", "share"]
        parts += [tag("h3", {}, text("Most frequent confusions")), table([header, *shown], numbers_from=2)]
    return Section("confusion", f"Confusion matrix ({report.scored_split})", join(parts))


def _bars(scores: tuple[ClassScore, ...] | list[ClassScore]) -> Html:
    most = max((score.support for score in scores), default=0) or 1
    rows = [
        [
            name(score.name),
            *(_cell(score_text(value), value) for value in (score.precision, score.recall, score.f1)),
            _cell(f"{score.support:,}", score.support / most),
        ]
        for score in scores
    ]
    header = [text(word) for word in ("class", "precision", "recall", "F1", "rows")]
    return tag("div", {"class": "class-bars"}, data_table(header, rows, numbers_from=1))


def _cell(words: str, share: float) -> Html:
    return join([tag("span", {}, text(words)), charts.bar(share)])
