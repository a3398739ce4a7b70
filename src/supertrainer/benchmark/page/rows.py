"""Sections that show rows: predicted numbers, the worst mistakes, and samples. Their texts are anybody's."""

from __future__ import annotations

from supertrainer.benchmark.page import charts
from supertrainer.benchmark.page.findings import Findings
from supertrainer.benchmark.page.markup import Html, Section, join, muted, name, paragraph, tag, text
from supertrainer.benchmark.page.worst import MOST_TEXT, Mistake
from supertrainer.benchmark.results import Sample

OPEN_TEXT = 400  # characters that stand open


def mistakes(findings: Findings) -> Section | None:
    """What the model got most wrong: wrong labels and hard rows are found here first."""
    worst, confusion = findings.worst, findings.report.confusion
    if not worst.mistakes:
        return None
    words = f"The {len(worst.mistakes)} {worst.title}."
    if confusion:
        wrong = sum(map(sum, confusion)) - sum(row[place] for place, row in enumerate(confusion))
        words += f" Of {sum(map(sum, confusion)):,} rows of {findings.report.scored_split}, {wrong:,} are wrong."
    cards = (_mistake(one) for one in worst.mistakes)
    return Section("mistakes", "Worst mistakes", join([paragraph(text(words)), *cards]))


def numbers(findings: Findings) -> Section | None:
    """Predicted numbers over true ones."""
    pairs = findings.worst.pairs
    if not pairs:
        return None
    labels = [f"row {pair.row:,}" for pair in pairs]
    points = [(pair.true, pair.predicted) for pair in pairs]
    drawn = charts.scatter(points, title="Predictions", x="true", y="predicted", diagonal=True, labels=labels)
    return Section("numbers", f"Predicted and true ({findings.report.scored_split})", drawn)


def samples(findings: Findings) -> Section | None:
    """A few rows, evenly chosen, right or wrong."""
    if not findings.report.samples:
        return None
    return Section("samples", "Samples", join(_sample(sample) for sample in findings.report.samples))


def shown_text(value: str, *, characters: int | None = None) -> Html:
    """A row's text in its own direction, its beginning open and the rest folded.

    Args:
        value: what is kept of it.
        characters: how many it really has.
    """
    characters = len(value) if characters is None else characters
    if not value.strip():
        return tag("div", {"class": "row-text"}, muted("empty text"))
    opened = tag("div", {"class": "row-text", "dir": "auto"}, text(value[:OPEN_TEXT] + "…" * (len(value) > OPEN_TEXT)))
    if len(value) <= OPEN_TEXT:
        return opened
    left_out = f" … (cut at {MOST_TEXT:,})" if characters > len(value) else ""
    summary = tag("summary", {}, text(f"all {characters:,} characters{left_out}"))
    whole = tag("div", {"class": "row-text", "dir": "auto"}, text(value))
    return join([opened, tag("details", {}, summary, whole)])


def _mistake(mistake: Mistake) -> Html:
    facts = [_fact(*told) for told in mistake.told]
    texts = [shown_text(part, characters=size) for part, size in zip(mistake.texts, mistake.characters, strict=True)]
    return _card(f"row {mistake.row:,}", facts=facts, texts=texts, kind=" wrong")


def _sample(sample: Sample) -> Html:
    facts = [_fact("true", sample.true) if sample.true is not None else text("no label")]
    if sample.before is not None:
        facts.append(_fact("before training", sample.before))
    facts.append(_fact("predicted", sample.predicted, sample.probability))
    kind = "" if sample.true is None else " right" if sample.true == sample.predicted else " wrong"
    if sample.error is not None:  # a number is off by more or less, not right or wrong
        kind = ""
        facts.append(_fact("off by", f"{sample.error:.4g}"))
    return _card(f"row {sample.row:,}", facts=facts, texts=[shown_text(sample.text)], kind=kind)


def _card(where: str, *, facts: list[Html], texts: list[Html], kind: str) -> Html:
    head = tag("div", {"class": "card-head"}, tag("span", {"class": "muted"}, text(where)), *facts)
    return tag("article", {"class": f"card{kind}"}, head, *texts)


def _fact(what: str, value: str, number: float | None = None) -> Html:
    sure = tag("span", {"class": "muted"}, text(f" {number:.3f}")) if number is not None else Html("")
    return tag("span", {}, tag("span", {"class": "muted"}, text(f"{what} ")), tag("b", {}, name(value)), sure)
