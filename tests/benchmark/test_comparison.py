"""Runs side by side: sorted, with what differs, and never an error for what a directory holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from supertrainer.benchmark.comparison import compare, differing_keys
from supertrainer.core.run_directory import RunDirectory


def make_run(root: Path, name: str, *, score: float | None, lr: float, metric: str = "macro_f1", **files: Any) -> Path:
    """A run directory with a config, and a report where it has a score."""
    run = root / name
    run.mkdir()
    tree = {"run": {"name": name}, "trainer": {"training_kwargs": {"learning_rate": lr}}}
    tree["metric"] = {"main": metric, "greater_is_better": metric != "loss"}
    (run / "config.json").write_text(json.dumps({"identity": {}, "config": tree}))
    if score is not None:
        report = {"status": "finished", "main_metric": metric, "metrics": {"test": {metric: score}}}
        report |= {"scored_split": "test", "steps": 9, "timing": {"seconds": 2.0, "rows_per_second": 36.0}}
        (run / "report.json").write_text(json.dumps(report))
    for file, content in files.items():
        (run / file.replace("_", ".")).write_text(content if isinstance(content, str) else json.dumps(content))
    return run


def test_the_best_stands_first_and_what_differs_is_named(tmp_path: Path) -> None:
    paths = [make_run(tmp_path, n, score=s, lr=r) for n, s, r in (("a", 0.5, 1.0), ("b", 0.9, 2.0), ("c", None, 3.0))]
    runs = compare(map(RunDirectory, paths))
    assert [Path(run.run).name for run in runs] == ["b", "a", "c"]
    assert differing_keys(runs) == ["trainer.training_kwargs.learning_rate"]
    losses = [make_run(tmp_path, n, score=s, lr=1.0, metric="loss") for n, s in (("d", 0.5), ("e", 0.9))]
    assert [Path(run.run).name for run in compare(map(RunDirectory, losses))] == ["d", "e"]


def test_estimated_over_measured_memory(tmp_path: Path) -> None:
    estimate = {"peak_gib": 1.5, "measured": {"growth_gib": 2.0}}
    [run] = compare([RunDirectory(make_run(tmp_path, "a", score=0.5, lr=1.0, estimate_json=estimate))])
    assert (run.estimated_gib, run.measured_gib, run.ratio) == (1.5, 2.0, 0.75)
    shrunk = {"peak_gib": 1.5, "measured": {"growth_gib": 0.0}}
    [run] = compare([RunDirectory(make_run(tmp_path, "b", score=0.5, lr=1.0, estimate_json=shrunk))])
    assert run.ratio is None


def test_missing_unfinished_and_damaged_runs_are_shown_as_such(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    unfinished = make_run(tmp_path, "unfinished", score=None, lr=1.0)
    start = {"event": "start", "attempt": 1, "time": "t", "command": [], "host": "h", "pid": 1, "job_id": ""}
    rows = [{**start, "processes": 1, "resumed_step": None}, {"event": "plan", "attempt": 1, "planned_steps": 50}]
    rows.append({"event": "end", "attempt": 1, "time": "t", "outcome": "interrupted", "step": 12, "reason": "SIGINT"})
    (unfinished / "attempts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cut = make_run(tmp_path, "cut", score=None, lr=1.0, report_json='{"status": ')
    odd = make_run(tmp_path, "odd", score=0.1, lr=1.0, estimate_json="[1]")
    strange = make_run(tmp_path, "strange", score=None, lr=1.0, report_json={"metrics": 3, "timing": "x"})
    paths = [tmp_path / "gone", tmp_path / "empty", tmp_path / "file", unfinished, cut, odd, strange]
    states = {Path(run.run).name: run.state for run in compare(map(RunDirectory, paths))}
    assert states == {
        "gone": "missing",
        "empty": "no run",
        "file": "no directory",
        "unfinished": "interrupted at step 12 of 50",
        "cut": "damaged: report.json",
        "odd": "damaged: estimate.json",
        "strange": "finished",
    }


def test_a_score_that_is_no_number_comes_last(tmp_path: Path) -> None:
    paths = [make_run(tmp_path, "a", score=0.1, lr=1.0), make_run(tmp_path, "b", score=0.2, lr=1.0)]
    text = (paths[1] / "report.json").read_text().replace("0.2", '"NaN"')
    (paths[1] / "report.json").write_text(text)
    assert [Path(run.run).name for run in compare(map(RunDirectory, paths))] == ["a", "b"]
