"""The ending that a command prints: scores beside the baselines, samples, where everything is. No torch.

Plain lines without colours, at most 100 columns, in whatever encoding the stream has: a log file reads as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TextIO

from supertrainer.benchmark.display import column_widths, one_line, pad, wrapped
from supertrainer.benchmark.results import BenchmarkResult, Report, Sample
from supertrainer.benchmark.summary import (
    class_table,
    comparison,
    data_text,
    model_text,
    scored_split,
    timing_text,
    type_table,
    verdict,
)

WIDTH = 100
MARGIN = 14  # columns of the names at the left
WORD = re.compile(r"""(?:[^\s\\"']|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")  # of a shell
LABEL_WIDTH = 24  # of a predicted or true label beside a row's number
MOST_CLASSES = 30  # that are printed one by one


def print_report(report: Report, *, stream: TextIO) -> None:
    """Prints how a run ended: its scores beside both baselines, sample predictions, the run directory."""
    title = f"{report.name}: {report.operation} {report.status} after {report.steps:,} steps (mode {report.mode})"
    lines = [
        *wrapped(title, width=WIDTH, rest="  "),
        *_facts(report),
        *_scores(report),
        *_types(report),
        *_samples(report),
        *_notes(report),
    ]
    _write(
        [*lines, "", *_files(report.directory, report="report.md", page="report.html"), *_commands(report)],
        stream=stream,
    )


def print_benchmark(result: BenchmarkResult, *, directory: str, stream: TextIO) -> None:
    """Prints the scores of a benchmark beside both baselines, those of each class, and where the files are."""
    lines = [f"benchmark of {result.rows:,} rows of {result.split}", *_facts(result), *_scores(result), *_types(result)]
    if 0 < len(result.per_class) <= MOST_CLASSES:
        lines += ["", *_table(class_table(result), numbers_from=1)]
    lines += [*_samples(result), "", *_files(directory, result="benchmark.json", rows="predictions.jsonl")]
    _write(lines, stream=stream)


def _facts(scores: Report | BenchmarkResult) -> Iterator[str]:
    facts = {"model": model_text(scores), "data": data_text(scores), "time": timing_text(scores)}
    for name, text in facts.items():
        yield from wrapped(text, width=WIDTH, first=pad(name, width=MARGIN), rest=" " * MARGIN)


def _scores(scores: Report | BenchmarkResult) -> Iterator[str]:
    table = comparison(scores)
    if len(table) > 1:
        yield ""
        yield from _table(table, numbers_from=2)
    if difference := verdict(scores):
        yield from wrapped(difference, width=WIDTH, rest="  ")


def _types(scores: Report | BenchmarkResult) -> Iterator[str]:
    if 0 < len(scores.per_type) <= MOST_CLASSES:
        yield ""
        yield from _table(type_table(scores), numbers_from=1)


def _samples(scores: Report | BenchmarkResult) -> Iterator[str]:
    if scores.samples:
        yield ""
        yield f"samples of {scored_split(scores)}"
    for sample in scores.samples:
        if _is_answer(sample):
            yield from _answer(sample)
            continue
        yield f"  row {sample.row:<11,}{_judgement(sample)}"
        yield f"    {one_line(sample.text, width=WIDTH - 4)}"


def _is_answer(sample: Sample) -> bool:
    """Whether a sample is text against text, which needs lines of its own."""
    longest = max(len(sample.predicted), len(sample.true or ""))
    return sample.before is not None or (sample.probability is None and sample.error is None and longest > LABEL_WIDTH)


def _answer(sample: Sample) -> Iterator[str]:
    yield f"  row {sample.row:,}"
    told = {"text": sample.text, "true": sample.true, "before": sample.before, "predicted": sample.predicted}
    for name, text in told.items():
        if text is not None:
            yield f"    {pad(name, width=MARGIN - 4)}{one_line(text, width=WIDTH - MARGIN) or '(nothing)'}"


def _judgement(sample: Sample) -> str:
    probability = "" if sample.probability is None else f" ({sample.probability:.2f})"
    predicted = f"predicted {one_line(sample.predicted, width=LABEL_WIDTH)}{probability}"
    if sample.true is None:
        return predicted
    if sample.error is not None:
        return f"off by {sample.error:.4g}  {predicted}, true {one_line(sample.true, width=LABEL_WIDTH)}"
    mark = "right" if sample.true == sample.predicted else "WRONG"
    return f"{mark}  {predicted}, true {one_line(sample.true, width=LABEL_WIDTH)}"


def _notes(report: Report) -> Iterator[str]:
    if report.notes:
        yield ""
    for note in report.notes:
        yield from wrapped(note, width=WIDTH, first="note: ", rest="      ")


def _files(directory: str, **files: str) -> Iterator[str]:
    yield f"{pad('run directory', width=MARGIN)}{directory}"
    for name, file in files.items():
        yield f"{pad(name, width=MARGIN)}{directory.rstrip('/')}/{file}"


def _commands(report: Report) -> Iterator[str]:
    """Each command over as many lines as it needs, continued so that all of them can be pasted at once."""
    for purpose, command in report.commands.items():
        words = WORD.findall(command)
        if " ".join(words) != command:  # an open quote or lines of its own: not ours to break
            words = [command]
        yield f"{purpose}:"
        line = " " * 2
        for word in words:
            if line.strip() and len(line) + len(word) + 3 > WIDTH:
                yield f"{line} \\"
                line = " " * 6
            line += f" {word}" if line.strip() else word
        yield line


def _table(rows: Sequence[Sequence[str]], *, numbers_from: int) -> Iterator[str]:
    """Columns of equal width under their header; numbers stand right."""
    shown = [[one_line(cell, width=30) for cell in row] for row in rows]
    widths = column_widths(shown)
    for place, row in enumerate(shown):
        cells = zip(row, widths, strict=True)
        yield "  ".join(pad(cell, width=width, right=at >= numbers_from) for at, (cell, width) in enumerate(cells))
        if place == 0:
            yield "-" * (sum(widths) + 2 * (len(widths) - 1))


def _write(lines: Sequence[str], *, stream: TextIO) -> None:
    encoding = stream.encoding or "utf-8"
    text = "".join(f"{line.rstrip()}\n" for line in lines)
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()
