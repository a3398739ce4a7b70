"""report.html in a real browser: it fetches nothing, obeys nothing, and shows what it should at every width.

SUPERTRAINER_BROWSER_REQUIRED=1, which `.ci/run` sets, makes a browser that is not there an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from browser import Page, find_browser, open_page
from supertrainer.benchmark.report import write_page
from supertrainer.benchmark.results import Report, Sample
from supertrainer.core.files import write_json
from supertrainer.core.records import append_record, read_records
from supertrainer.core.run_directory import RunDirectory
from supertrainer.metrics.scores import ClassScore

pytestmark = pytest.mark.browser

TEXTS = [
    "<script>alert(1)</script>",
    '<img src="http://127.0.0.1:9/x.png" onerror="alert(2)">',
    "مرحبا بالعالم",
    "体育新闻，" * 50,
    "👩\u200d💻 🎉",
    "x" * 10_000,
    "",
]
NAMES = ("<b>bad</b>", "الرياضة", *(f"class {number}" for number in range(28)))
SHOWN = "[...document.querySelectorAll('section')].map(one => one.id)"


@pytest.fixture
def page() -> Iterator[Page]:
    """A browser's tab; the test is skipped where there is no browser."""
    program = find_browser()
    if program is None and os.environ.get("SUPERTRAINER_BROWSER_REQUIRED") != "1":
        pytest.skip("no Chromium here: scripts/browser.sh install")
    assert program is not None, "SUPERTRAINER_BROWSER_REQUIRED=1, and no Chromium is here: scripts/browser.sh install"
    with open_page(program) as opened:
        yield opened


@pytest.fixture
def report_html(tmp_path: Path, make_report: Callable[..., Report]) -> Path:
    """The page of a run of 30 classes, whose rows and class names try what they can."""
    run = RunDirectory(tmp_path / "run")
    run.create()
    for step in range(1, 201):
        append_record(run.metrics_jsonl, {"step": step, "loss": 2.0 - step / 200, "lr": 1e-4, "grad_norm": 1.0})
        if step % 50 == 0:
            append_record(run.metrics_jsonl, {"step": step, "eval_loss": 1.5, "eval_macro_f1": step / 400})
    for row, text in enumerate(TEXTS):
        probabilities = {NAMES[1]: 0.9 - row / 100, NAMES[0]: 0.05}
        told = {"row": row, "text": text, "true": NAMES[0], "predicted": NAMES[1], "probabilities": probabilities}
        append_record(run.predictions_jsonl, told)
    write_json(run.path / "benchmark.json", {"split": "test"})
    size = len(NAMES)
    facts = make_report().data.model_copy(update={"labels": NAMES})
    changes = {
        "data": facts.model_dump(),
        "confusion": tuple(tuple(90 if t == p else (t * p) % 3 for p in range(size)) for t in range(size)),
        "per_class": tuple(ClassScore(name, 0.5, 0.75, 0.6, 100) for name in NAMES),
        "samples": (Sample(row=0, text=TEXTS[0], predicted=NAMES[0]),),
        "notes": (TEXTS[0],),
    }
    write_page(run, report=make_report(**changes), records=read_records(run.metrics_jsonl).rows)
    return run.report_html


def test_it_asks_for_nothing_and_obeys_nothing(page: Page, report_html: Path) -> None:
    page.show(report_html)
    assert (page.messages, page.fetched) == ([], [])
    assert page.requests == [report_html.as_uri()]
    assert page.value("document.scripts.length") == 1
    assert page.value("document.images.length") == 0
    assert page.value(SHOWN) == [
        *("result", "notes", "training", "classes", "confusion", "mistakes", "samples"),
        *("about", "attempts", "commands", "files"),
    ]
    texts = page.value("[...document.querySelectorAll('#mistakes .card')].map(one => one.children[1].textContent)")
    assert texts == [*TEXTS[:5], "x" * 400 + "…", "empty text"]
    assert page.value("getComputedStyle(document.querySelectorAll('#mistakes .row-text')[2]).direction") == "rtl"


def test_what_a_row_smuggles_in_would_be_seen(page: Page, report_html: Path) -> None:
    html = report_html.read_text(encoding="utf-8")
    report_html.write_text(html.replace("</main>", f"{TEXTS[0]}{TEXTS[1]}</main>"), encoding="utf-8")
    page.show(report_html)
    assert page.messages  # its policy refuses both, and says so
    assert page.value("document.scripts.length") == 2


def test_curves_have_points_and_the_pointer_tells_their_values(page: Page, report_html: Path) -> None:
    page.show(report_html)
    assert page.value("[...document.querySelectorAll('#training h3')].map(one => one.textContent)") == [
        *("Loss", "macro_f1", "Learning rate", "Gradient norm")
    ]
    assert page.value("document.querySelector('#training polyline').points.numberOfItems") == 200
    assert page.value("document.querySelectorAll('#training .chart:first-child .plot circle').length") == 4
    told = "document.querySelector('#training figcaption').innerText.replace(/\\s+/g, ' ').trim()"
    at_rest = "Loss step 200 training 1 running mean 1.012 evaluation 1.5"
    assert page.value(told) == at_rest
    page.point("#training .plot", across=0.25)
    assert page.value(told) == "Loss step 51 training 1.745 running mean 1.745 evaluation 1.5 at 50"
    assert page.value("document.querySelector('#training .cursor').getAttribute('visibility')") == "visible"
    page.point("h1", across=0.5)
    assert page.value(told) == at_rest


def test_the_matrix_shows_counts_or_shares(page: Page, report_html: Path) -> None:
    page.show(report_html)
    cell = "document.querySelector('.matrix td').innerText"
    assert page.value("document.querySelectorAll('.matrix td').length") == 900
    assert page.value(cell) == "90"
    page.value("document.querySelector('input.shares').click()")
    assert page.value(cell) == "100"


def test_nothing_is_wider_than_the_screen(page: Page, report_html: Path) -> None:
    boxes = "[...document.querySelectorAll('section > *')].map(one => one.getBoundingClientRect().right)"
    for width in (320, 375, 768, 1200):
        page.show(report_html, width=width)
        assert page.value("document.documentElement.scrollWidth") <= width
        assert max(page.value(boxes)) <= width


def test_text_stands_out_from_its_ground(page: Page, report_html: Path) -> None:
    light = "(rgb => rgb.match(/[\\d.]+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0) / 765)"
    for dark in (False, True):
        page.show(report_html, dark=dark)
        paper = page.value(f"{light}(getComputedStyle(document.body).backgroundColor)")
        assert (paper < 0.2) is dark
        for part, key in (("h1", "color"), (".muted", "color"), ("figcaption", "color"), (".frame text", "fill")):
            ink = page.value(f"{light}(getComputedStyle(document.querySelector('{part}')).{key})")
            assert abs(ink - paper) > 0.4, part
        assert page.value("getComputedStyle(document.querySelector('.curve')).stroke") != "none"


def test_it_prints(page: Page, report_html: Path, tmp_path: Path) -> None:
    page.show(report_html, dark=True)
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.value("getComputedStyle(document.querySelector('nav')).display") == "none"
    page.printed(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
