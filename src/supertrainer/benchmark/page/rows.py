"""Sections that show rows: the surest mistakes, and samples. Their texts are anybody's."""

from __future__ import annotations

from supertrainer.benchmark.page.findings import MOST_TEXT, Findings, Mistake
from supertrainer.benchmark.page.markup import Html, Section, join, muted, name, paragraph, tag, text
from supertrainer.benchmark.results import Sample

OPEN_TEXT = 400  # characters that stand open


def mistakes(findings: Findings) -> Section | None:
    """The wrong predictions that the model was surest of: wrong labels and hard rows are found here first."""
    if not findings.mistakes:
        return None
    confusion = findings.report.confusion
    wrong = sum(map(sum, confusion)) - sum(row[place] for place, row in enumerate(confusion))
    many = f" Of {sum(map(sum, confusion)):,} rows of {findings.report.scored_split}, {wrong:,} are wrong."
    words = f"The {len(findings.mistakes)} wrong predictions of greatest probability." + (many if confusion else "")
    cards = (_mistake(one) for one in findings.mistakes)
    return Section("mistakes", "Surest mistakes", join([paragraph(text(words)), *cards]))


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
    facts = [_fact("true", mistake.true), _fact("predicted", mistake.predicted, mistake.probability)]
    if mistake.true_probability is not None:
        facts[0] = _fact("true", mistake.true, mistake.true_probability)
    texts = [shown_text(part, characters=size) for part, size in zip(mistake.texts, mistake.characters, strict=True)]
    return _card(f"row {mistake.row:,}", facts=facts, texts=texts, wrong=True)


def _sample(sample: Sample) -> Html:
    facts = [_fact("true", sample.true) if sample.true is not None else text("no label")]
    facts.append(_fact("predicted", sample.predicted, sample.probability))
    wrong = sample.true is not None and sample.true != sample.predicted
    return _card(f"row {sample.row:,}", facts=facts, texts=[shown_text(sample.text)], wrong=wrong)


def _card(where: str, *, facts: list[Html], texts: list[Html], wrong: bool) -> Html:
    head = tag("div", {"class": "card-head"}, tag("span", {"class": "muted"}, text(where)), *facts)
    return tag("article", {"class": "card wrong" if wrong else "card"}, head, *texts)


def _fact(what: str, value: str, probability: float | None = None) -> Html:
    sure = tag("span", {"class": "muted"}, text(f" {probability:.3f}")) if probability is not None else Html("")
    return tag("span", {}, tag("span", {"class": "muted"}, text(f"{what} ")), tag("b", {}, name(value)), sure)
