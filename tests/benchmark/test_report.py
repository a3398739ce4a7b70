"""A report in its run directory: complete JSON, a page whose links lead somewhere, whole files only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from supertrainer.benchmark import report as report_module
from supertrainer.benchmark.report import add_missing_page, read_report, write_report
from supertrainer.benchmark.results import Report
from supertrainer.core.errors import DataError
from supertrainer.core.records import append_record
from supertrainer.core.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory with the metrics of four steps."""
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    for step in range(1, 5):
        append_record(directory.metrics_jsonl, {"step": step, "loss": 1.0 / step, "lr": 1e-4})
    return directory


def test_report_reads_back(run: RunDirectory, make_report: Callable[..., Report]) -> None:
    report = make_report()
    write_report(run, report=report)
    assert read_report(run) == report
    raw = json.loads(run.report_json.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert raw["metrics"]["test"]["macro_f1"] == 0.8125
    assert raw["confusion"] == [[9, 1], [3, 7]]
    assert [baseline["name"] for baseline in raw["baselines"]] == ["majority class", "bag of words"]


def test_every_link_of_the_page_leads_to_a_file(run: RunDirectory, make_report: Callable[..., Report]) -> None:
    write_report(run, report=make_report())
    links = re.findall(r"(?<!\\)\]\(([^)]+)\)", run.report_md.read_text(encoding="utf-8"))
    assert {link for link in links if link.startswith("plots/")} == {
        "plots/loss.png",
        "plots/learning_rate.png",
        "plots/confusion.png",
        "plots/classes.png",
    }
    assert {"report.json", "metrics.jsonl"} <= set(links)
    assert all((run.path / link).is_file() for link in links)


def test_run_without_data_has_no_pictures_and_no_links_to_them(
    tmp_path: Path, make_report: Callable[..., Report]
) -> None:
    run = RunDirectory(tmp_path)
    write_report(run, report=make_report(per_class=(), confusion=()))
    assert list(run.plots.iterdir()) == []
    assert "plots/" not in run.report_md.read_text(encoding="utf-8")


def test_second_report_replaces_the_first(run: RunDirectory, make_report: Callable[..., Report]) -> None:
    write_report(run, report=make_report())
    write_report(run, report=make_report(status="interrupted", per_class=(), confusion=()))
    assert sorted(path.name for path in run.plots.iterdir()) == ["learning_rate.png", "loss.png"]
    assert read_report(run).status == "interrupted"
    assert "| status | interrupted |" in run.report_md.read_text(encoding="utf-8")
    assert not list(run.path.glob("**/*.tmp"))


def test_links_of_the_html_page_lead_to_files(run: RunDirectory, make_report: Callable[..., Report]) -> None:
    write_report(run, report=make_report())
    page = run.report_html.read_text(encoding="utf-8")
    links = re.findall(r'href="([^"#][^"]*)"', page)
    assert {"report.json", "report.md", "metrics.jsonl"} <= set(links)
    assert all((run.path / link).is_file() for link in links if link != "data:,")
    assert page.count("<polyline") == 2  # loss and learning rate


def test_missing_page_is_written_from_the_report_and_another_stays(
    run: RunDirectory, make_report: Callable[..., Report]
) -> None:
    write_report(run, report=make_report())
    page = run.report_html.read_bytes()
    run.report_html.unlink()
    add_missing_page(run, report=read_report(run))
    assert run.report_html.read_bytes() == page
    run.report_html.write_text("mine")
    add_missing_page(run, report=read_report(run))
    assert run.report_html.read_text() == "mine"


def test_page_that_cannot_be_written_is_told_and_no_error(
    run: RunDirectory,
    make_report: Callable[..., Report],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(report_module, "write_atomic", read_only)
    add_missing_page(run, report=make_report())
    assert "report.html is not there and can't be written: [Errno 13] Permission denied" in caplog.text


def test_failing_picture_leaves_the_old_report(
    run: RunDirectory, make_report: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(run, report=make_report())

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_module.plots, "draw_loss", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_report(run, report=make_report(status="interrupted"))
    assert read_report(run).status == "finished"
    assert "| status | finished |" in run.report_md.read_text(encoding="utf-8")


@pytest.mark.parametrize("content", ["{", "{}", '{"format": 99}', ""])
def test_what_is_no_report_is_said(run: RunDirectory, content: str) -> None:
    run.report_json.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"report\.json can't be read as a report"):
        read_report(run)


def test_lone_surrogate_in_a_text_can_be_written(run: RunDirectory, make_report: Callable[..., Report]) -> None:
    samples = ({"row": 0, "text": "cut \ud83d here", "true": "bad", "predicted": "bad"},)
    write_report(run, report=make_report(samples=samples))
    assert "cut � here" in run.report_md.read_text(encoding="utf-8")


def test_reading_and_printing_import_no_torch() -> None:
    code = (
        "import sys, supertrainer.benchmark.report, supertrainer.benchmark.console\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'sklearn', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
