"""The report of a run in its directory: report.json for programs, the pages and plots/ for people. No torch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from supertrainer.benchmark import markdown, plots
from supertrainer.benchmark.page import document
from supertrainer.benchmark.page.findings import gather
from supertrainer.benchmark.results import Report
from supertrainer.core.errors import DataError
from supertrainer.core.files import write_atomic, write_json
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory

log = logging.getLogger(__name__)

LINKED = (
    "report.json",
    "report.html",
    "report.md",
    "metrics.jsonl",
    "config.yaml",
    "environment.json",
    "data.json",
    "benchmark.json",
    "predictions.jsonl",
    "samples.jsonl",
    "sheet.png",
)


def write_report(run: RunDirectory, *, report: Report) -> None:
    """Writes plots/*.png, report.html, report.md and report.json, each whole or not at all; the last one says that all
    are there.

    The curves are drawn from the run's metrics.jsonl; a picture without data isn't drawn, and not linked to.

    Raises:
        OSError: the disk is full or the directory isn't writable.
    """
    records = read_records(run.metrics_jsonl).rows
    pictures = _draw(records, report=report)
    run.plots.mkdir(exist_ok=True)
    for name in markdown.PICTURES:
        path = run.plots / f"{name}.png"
        if name in pictures:
            write_atomic(path, pictures[name])
        else:
            path.unlink(missing_ok=True)  # of an earlier report: this one doesn't say what it shows
    links = {name: f"{run.plots.name}/{name}.png" for name in pictures}
    write_page(run, report=report, records=records)
    write_atomic(run.report_md, markdown.render(report, plots=links, files=_files(run, but=run.report_md.name)))
    write_json(run.report_json, report.model_dump())


def write_page(run: RunDirectory, *, report: Report, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes report.html, whole or not at all, from the report and what lies in the run directory.

    Args:
        report: what to tell.
        records: the rows of metrics.jsonl.

    Raises:
        OSError: the disk is full or the directory isn't writable.
    """
    findings = gather(run, report=report, records=records, files=_files(run, but=run.report_html.name))
    write_atomic(run.report_html, document.render(findings))


def add_missing_page(run: RunDirectory, *, report: Report) -> None:
    """Writes report.html where a finished run has none; a directory that can't be written to stays as it is."""
    if run.report_html.is_file():
        return
    try:
        write_page(run, report=report, records=read_records(run.metrics_jsonl).rows)
    except OSError as error:
        log.warning("%s is not there and can't be written: %s", run.report_html, error)


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


def _files(run: RunDirectory, *, but: str) -> list[str]:
    """Names of files to link to; report.json is written last."""
    there = [
        file for file in LINKED if (run.path / file).exists() or file in (run.report_json.name, run.report_md.name)
    ]
    return [file for file in there if file != but]


def _draw(records: list[dict[str, Any]], *, report: Report) -> dict[str, bytes]:
    pictures = {"loss": plots.draw_loss(records), "learning_rate": plots.draw_learning_rate(records)}
    if report.confusion:
        pictures["confusion"] = plots.draw_confusion(report.confusion, labels=report.data.labels)
    if report.per_class:
        pictures["classes"] = plots.draw_class_scores(report.per_class)
    return {name: picture for name, picture in pictures.items() if picture is not None}
