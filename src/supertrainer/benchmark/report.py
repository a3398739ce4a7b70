"""The report of a run in its directory: report.json for programs, report.md and plots/ for people. No torch."""

from __future__ import annotations

from supertrainer.benchmark import markdown, plots
from supertrainer.benchmark.results import Report
from supertrainer.core.errors import DataError
from supertrainer.core.files import write_atomic, write_json
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory

LINKED = (
    "report.json",
    "metrics.jsonl",
    "config.yaml",
    "environment.json",
    "data.json",
    "benchmark.json",
    "predictions.jsonl",
)


def write_report(run: RunDirectory, *, report: Report) -> None:
    """Writes plots/*.png, report.md and report.json, each whole or not at all; the last one says that all are there.

    The curves are drawn from the run's metrics.jsonl; a picture without data isn't drawn, and not linked to.

    Raises:
        OSError: the disk is full or the directory isn't writable.
    """
    pictures = _draw(run, report=report)
    run.plots.mkdir(exist_ok=True)
    for name in markdown.PICTURES:
        path = run.plots / f"{name}.png"
        if name in pictures:
            write_atomic(path, pictures[name])
        else:
            path.unlink(missing_ok=True)  # of an earlier report: this one doesn't say what it shows
    links = {name: f"{run.plots.name}/{name}.png" for name in pictures}
    files = [file for file in LINKED if (run.path / file).exists() or file == run.report_json.name]
    write_atomic(run.report_md, markdown.render(report, plots=links, files=files))
    write_json(run.report_json, report.model_dump())


def read_report(run: RunDirectory) -> Report:
    """The report of a run that has one.

    Raises:
        OSError: there is none, or it can't be read.
        DataError: report.json isn't a report of this version.
    """
    try:
        return Report.model_validate_json(run.report_json.read_bytes())
    except ValueError as error:
        raise DataError(
            f"{run.report_json} can't be read as a report: {str(error).splitlines()[0]}.",
            why="it was edited, cut off, or written by another version.",
            fix="read report.md, or write it again: start the run's command once more with its checkpoints in place.",
        ) from error


def _draw(run: RunDirectory, *, report: Report) -> dict[str, bytes]:
    records = read_records(run.metrics_jsonl).rows
    pictures = {"loss": plots.draw_loss(records), "learning_rate": plots.draw_learning_rate(records)}
    if report.confusion:
        pictures["confusion"] = plots.draw_confusion(report.confusion, labels=report.data.labels)
    if report.per_class:
        pictures["classes"] = plots.draw_class_scores(report.per_class)
    return {name: picture for name, picture in pictures.items() if picture is not None}
