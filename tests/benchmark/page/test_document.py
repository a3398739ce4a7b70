"""report.html as text: what it tells, what it leaves out, and that nothing in it is obeyed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from supertrainer.benchmark.page.document import SECTIONS, render
from supertrainer.benchmark.page.findings import Findings, gather, presentable
from supertrainer.benchmark.page.markup import Section, table, tag, text
from supertrainer.benchmark.page.training import curves, running_mean, series
from supertrainer.benchmark.page.worst import read_worst
from supertrainer.benchmark.results import Report, Sample
from supertrainer.core.files import write_json
from supertrainer.core.records import append_record
from supertrainer.core.run_directory import RunDirectory

Made = Callable[..., Report]


def anchors(page: str) -> list[str]:
    return re.findall(r'<section id="([a-z-]+)">', page)


def record(row: int, predicted: str, probability: float, **changes: Any) -> dict[str, Any]:
    """A line of predictions.jsonl whose true class is `bad`."""
    probabilities = {"bad": round(1 - probability, 6), "good": probability}
    return {
        "row": row,
        "text": f"text {row}",
        "true": "bad",
        "predicted": predicted,
        "probabilities": probabilities,
    } | changes


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory with curves, predictions of the test split, an environment and a start."""
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    for step in range(1, 5):
        append_record(directory.metrics_jsonl, {"step": step, "loss": 1.0 / step, "lr": 1e-4})
    append_record(directory.metrics_jsonl, {"step": 4, "eval_loss": 0.5, "eval_macro_f1": 0.75})
    for row in range(40):
        append_record(directory.predictions_jsonl, record(row, "good", 0.5 + row / 100))
    write_json(directory.path / "benchmark.json", {"split": "test"})
    write_json(directory.environment_json, {"python": "3.11.7", "packages": {"torch": "2.13.0"}})
    command = [f"{Path.home()}/it/main.py", "trainer.hub_token=hf_0123456789abcdefghij"]
    append_record(directory.attempts_jsonl, {"event": "start", "attempt": 1, "command": command})
    return directory


def page_of(run: RunDirectory, report: Report, records: list[Mapping[str, Any]] | None = None) -> str:
    return render(gather(run, report=report, records=records or [], files=["report.json"]))


def test_markup_literal() -> None:
    assert tag("td", {"title": 'a"<'}, text("<b>\x1b[31m\u202e & 👩\u200d💻")) == (
        '<td title="a&quot;&lt;">&lt;b&gt; [31m  &amp; 👩\u200d💻</td>'
    )
    assert text("a\n\n\n\nb\r\nc\ud83d") == "a\n\nb\nc "
    assert "<td><bdi>&lt;i&gt;</bdi></td>" in table([["h"], ["<i>"]])


def test_all_sections_of_a_training_in_their_order(run: RunDirectory, make_report: Made) -> None:
    records = [{"step": 1, "loss": 0.5, "lr": 1e-4}]
    assert anchors(page_of(run, make_report(notes=("cut",)), records)) == [
        *("result", "notes", "training", "classes", "confusion", "mistakes", "samples"),
        *("about", "environment", "attempts", "commands", "files"),
    ]


def test_a_run_without_scores_has_the_sections_that_it_has_data_for(tmp_path: Path, make_report: Made) -> None:
    nothing = {"metrics": {}, "scored_split": None, "baselines": (), "per_class": (), "confusion": (), "samples": ()}
    report = make_report(operation="infer", attempts=(), commands={}, main_metric="none", definitions={}, **nothing)
    assert anchors(render(gather(RunDirectory(tmp_path), report=report, records=[]))) == ["about"]


def test_another_kind_of_result_is_one_more_function(make_report: Made) -> None:
    def perplexity(findings: Findings) -> Section:
        return Section("perplexity", "Perplexity", text(f"{findings.report.metrics['test']['loss']} < 1"))

    page = render(Findings(make_report()), sections=(*SECTIONS[:1], perplexity))
    assert anchors(page) == ["result", "perplexity"]
    assert '<a href="#perplexity">Perplexity</a>' in page
    assert "0.4 &lt; 1" in page


def test_only_its_own_script_and_style_may_run(run: RunDirectory, make_report: Made, nasty: str) -> None:
    page = page_of(run, make_report(name=nasty, notes=(nasty,), commands={nasty: nasty}, directory=nasty))
    policy = re.search(r'content="(default-src [^"]+)"', page)
    for kind in ("script", "style"):
        parts = re.findall(rf"<{kind}>(.*?)</{kind}>", page, flags=re.DOTALL)
        assert len(parts) == 1
        digest = base64.b64encode(hashlib.sha256(parts[0].encode()).digest()).decode()
        assert policy is not None
        assert f"{kind}-src &#x27;sha256-{digest}&#x27;" in policy[1]
    assert "default-src &#x27;none&#x27;" in page
    assert not re.search(r'(?:src|href)="(?!#|data:,|report\.json")', page)
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_mistakes_are_those_of_the_scored_split(run: RunDirectory, make_report: Made) -> None:
    with run.predictions_jsonl.open("a") as file:
        file.write('{"row": 99, "tr')  # torn off
    page = page_of(run, make_report())
    assert re.findall(r"row (\d+)</span><span><span class=.muted.>true", page)[:2] == ["39", "38"]
    assert page.count('class="card wrong"') == 20 + 1  # a sample is wrong too
    assert "The 20 wrong predictions of greatest probability. Of 20 rows of test, 4 are wrong." in page
    write_json(run.path / "benchmark.json", {"split": "validation"})
    assert "mistakes" not in anchors(page_of(run, make_report()))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("/home/alice/runs/a", "~/runs/a"),
        ("output: /Users/bob/x.csv", "output: ~/x.csv"),
        (r"C:\Users\bob\x.csv", r"~\x.csv"),
        ("run.root=/root/runs", "run.root=~/runs"),
        ("/data/home/x /srv/root/y rooted", "/data/home/x /srv/root/y rooted"),
        ("hub_token=hf_0123456789abcdefghij", "hub_token=***"),
        ("https://bob:pw12345@hub/x", "https://***@hub/x"),
    ],
)
def test_no_secret_and_no_home_directory(told: str, shown: str) -> None:
    assert presentable({"a": [told]}) == {"a": [shown]}


def test_what_is_known_only_here_is_hidden(
    run: RunDirectory, make_report: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_PASSWORD", "correct-horse")
    monkeypatch.setattr(Path, "home", lambda: Path("/pfs/people/carol"))
    append_record(run.predictions_jsonl, record(41, "good", 0.999, text="it is correct-horse"))
    run.config_yaml.write_text("source: /pfs/people/carol/data.csv\n")
    report = make_report(directory="/pfs/people/carol/runs/a", notes=("correct-horse",))
    page = page_of(run, report)
    assert "it is ***" in page
    assert "source: ~/data.csv" in page
    for hidden in ("correct-horse", "carol", "hf_0123"):
        assert hidden not in page


def test_a_long_run_makes_a_small_page(make_report: Made) -> None:
    records = [{"step": step, "loss": 1 / step, "lr": 1e-4, "grad_norm": 1.0} for step in range(1, 50_001)]
    assert len(render(Findings(make_report(), records))) < 200_000


def test_many_classes_make_a_page_of_bounded_size(make_report: Made) -> None:
    names = tuple(f"class {number}" for number in range(400))
    confusion = tuple(tuple(int(abs(t - p) < 2) for p in range(400)) for t in range(400))
    report = make_report().model_copy(update={"confusion": confusion})
    report = report.model_copy(update={"data": report.data.model_copy(update={"labels": names})})
    page = render(Findings(report))
    assert page.count('<th scope="row"') == 41
    assert len(page) < 500_000


def test_predicted_numbers_are_drawn_and_a_sample_is_neither_right_nor_wrong(make_report: Made) -> None:
    worst = read_worst([{"row": 3, "text": "a", "true": 1.0, "predicted": 3.0}])
    sample = Sample(row=3, text="a", true="1", predicted="3", error=2.0)
    scores = {"metrics": {"test": {"mse": 4.0}}, "main_metric": "mse", "baselines": ()}
    report = make_report(samples=(sample,), per_class=(), confusion=(), **scores)
    page = render(Findings(report, worst=worst))
    assert "<title>row 3: 1, 3</title>" in page
    assert page.count("off by") == 2
    assert page.count('class="card"') == 1


def test_bars_of_an_error_say_that_less_is_better(make_report: Made) -> None:
    baseline = make_report().baselines[0].model_copy(update={"metrics": {"mse": 8.0}})
    report = make_report(metrics={"test": {"mse": 4.0}}, main_metric="mse", baselines=(baseline,))
    assert "mse beside the baselines: less is better" in render(Findings(report))
    assert "less is better" not in render(Findings(make_report()))


def test_a_loss_that_is_no_number_is_said(make_report: Made) -> None:
    records = [{"step": 1, "loss": 0.5}, {"step": 2, "loss": float("nan")}, {"step": 3, "loss": float("inf")}]
    section = curves(Findings(make_report(), records))
    assert section is not None
    assert "not finite at 2 of 3 logged steps, first at step 2" in section.body
    assert series(records, key="loss") == [(1.0, 0.5)]


def test_running_mean_has_no_lag() -> None:
    points = [(float(step), 2.0 * step) for step in range(200)]
    assert running_mean(points)[100] == (100.0, 200.0)


def test_damaged_files_leave_their_part_out(run: RunDirectory, make_report: Made) -> None:
    run.environment_json.write_text("{")
    run.predictions_jsonl.write_bytes(b"\xff\xfe\n[]\n{}\n")
    run.attempts_jsonl.write_text(json.dumps({"event": "start", "attempt": 1}))
    assert not {"environment", "mistakes"} & set(anchors(page_of(run, make_report())))
