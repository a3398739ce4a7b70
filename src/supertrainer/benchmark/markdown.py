"""report.md: one page that says what was run, what came out, and how to go on. No torch.

Texts of rows are anybody's: what Markdown or HTML would read as markup is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from supertrainer.benchmark.display import one_line
from supertrainer.benchmark.results import Report
from supertrainer.benchmark.summary import (
    attempts_table,
    class_table,
    comparison,
    data_text,
    model_text,
    timing_text,
    training_text,
    type_table,
    verdict,
)

MARKUP = re.compile(r"([\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_]))")  # an underscore inside a word is none
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
TEXT_WIDTH = 300  # columns of a row's text
PICTURES = {
    "loss": "Loss over optimizer steps",
    "learning_rate": "Learning rate over optimizer steps",
    "confusion": "Confusion matrix",
    "classes": "Scores of each class",
}


def render(report: Report, *, plots: Mapping[str, str], files: Sequence[str] = ()) -> str:
    """The page.

    Args:
        report: what to tell.
        plots: names of `PICTURES` and the path of each picture that there is, relative to the page.
        files: other files of the run to link to, relative to the page.
    """
    blocks = [f"# {escape(report.name)}", _facts(report)]
    blocks += _result(report)
    blocks += _classes(report, plots=plots)
    blocks += _types(report)
    blocks += _samples(report)
    blocks += _training(report, plots=plots)
    blocks += _notes(report)
    blocks += _commands(report)
    if report.definitions:
        meanings = [["scalar", "definition"], *([name, text] for name, text in report.definitions.items())]
        blocks += ["## Definitions", table(meanings)]
    if files:
        blocks += ["## Files", "\n".join(f"- [{escape(file)}]({file})" for file in files)]
    return "\n\n".join(blocks) + "\n"


def escape(text: str, *, width: int = TEXT_WIDTH) -> str:
    """The text on one line, so that Markdown and HTML show it as it is."""
    line = MARKUP.sub(r"\\\1", one_line(text, width=width))
    return "".join(ENTITIES.get(char, char) for char in line)


def table(rows: Sequence[Sequence[str]], *, numbers_from: int | None = None) -> str:
    """A table whose first row is the header; columns from `numbers_from` on stand right."""
    header, *body = rows
    right = len(header) if numbers_from is None else numbers_from
    rule = ["---:" if place >= right else "---" for place in range(len(header))]
    cells = [[escape(cell) for cell in header], rule, *([escape(cell) for cell in row] for row in body)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def fenced(text: str) -> str:
    """The text as a block of code, whatever backticks it holds."""
    longest = max(map(len, re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}bash\n{text}\n{fence}"


def _facts(report: Report) -> str:
    facts = [
        ["", ""],
        ["status", report.status],
        ["experiment", report.experiment or "-"],
        ["mode", report.mode],
        ["operation", report.operation],
        ["model", model_text(report)],
        ["data", data_text(report)],
        ["time", timing_text(report)],
        ["run directory", report.directory],
    ]
    return table(facts)


def _result(report: Report) -> list[str]:
    rows = comparison(report)
    if len(rows) == 1:
        return []
    blocks = ["## Result", table(rows, numbers_from=2)]
    blocks += [f"{escape(difference)}."] if (difference := verdict(report)) else []
    methods = [f"- {escape(baseline.name)}: {escape(baseline.method)}" for baseline in report.baselines]
    return blocks + (["\n".join(methods)] if methods else [])


def _classes(report: Report, *, plots: Mapping[str, str]) -> list[str]:
    if not report.per_class:
        return []
    blocks = [f"## Classes ({escape(report.scored_split or '')})", table(class_table(report), numbers_from=1)]
    return blocks + _pictures(plots, names=("classes", "confusion"))


def _types(report: Report) -> list[str]:
    if not report.per_type:
        return []
    return [f"## Types ({escape(report.scored_split or '')})", table(type_table(report), numbers_from=1)]


def _samples(report: Report) -> list[str]:
    if not report.samples:
        return []
    if any(sample.before is not None for sample in report.samples):
        rows = [["row", "text", "true", "before training", "predicted"]]
        rows += [[str(one.row), one.text, one.true or "-", one.before or "-", one.predicted] for one in report.samples]
        return ["## Samples", table(rows)]
    rows = [["row", "text", "true", "predicted", "probability"]]
    for sample in report.samples:
        probability = "-" if sample.probability is None else f"{sample.probability:.3f}"
        rows.append([str(sample.row), sample.text, sample.true or "-", sample.predicted, probability])
    return ["## Samples", table(rows)]


def _training(report: Report, *, plots: Mapping[str, str]) -> list[str]:
    facts = escape(training_text(report), width=1_000)
    blocks = ["## Training", facts, *_pictures(plots, names=("loss", "learning_rate"))]
    return blocks + (["### Attempts", table(attempts_table(report))] if report.attempts else [])


def _notes(report: Report) -> list[str]:
    return ["## Notes", "\n".join(f"- {escape(note, width=1_000)}" for note in report.notes)] if report.notes else []


def _commands(report: Report) -> list[str]:
    blocks = [f"{escape(purpose)}:\n\n{fenced(command)}" for purpose, command in report.commands.items()]
    return ["## Commands", *blocks] if blocks else []


def _pictures(plots: Mapping[str, str], *, names: Sequence[str]) -> list[str]:
    return [f"![{PICTURES[name]}]({plots[name]})" for name in names if name in plots]
