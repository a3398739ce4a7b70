"""Run directories from outside: what the same command, another one, or two at once come to."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tiny_runs import TINY, write_rows
from zygote import Zygote

MAIN = Path(__file__).parents[2] / "src" / "supertrainer" / "main.py"
QUICK = [*TINY, "trainer.training_kwargs.num_train_epochs=1"]


def said(place: Path) -> str:
    """What the last command printed."""
    text = (place / "output.txt").read_text()
    (place / "output.txt").write_text("")
    return text


def test_a_run_leaves_everything_and_a_second_start_only_reports(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a", "tracker=tensorboard"], directory=place) == 0, said(place)
    run = place / "runs" / "a"
    first = said(place)
    assert "majority class" in first
    assert "bag of words" in first
    assert "runs/a/report.md" in first
    for name in (
        "config.yaml", "config.json", "environment.json", "data.json", "attempts.jsonl", "metrics.jsonl",
        "logs/run.log", "model/model.safetensors", "model/tokenizer.json", "report.json", "report.html", "report.md",
        "plots/loss.png", "plots/confusion.png", "benchmark.json", "predictions.jsonl",
    ):  # fmt: skip
        assert (run / name).exists(), name
    assert not (run / "lock.json").exists()
    assert list((run / "tensorboard").glob("events.*"))
    assert json.loads((run / "model" / "config.json").read_text())["id2label"] == {"0": "business", "1": "sports"}
    weights = (run / "model" / "model.safetensors").stat().st_mtime_ns
    assert zygote.run([*QUICK, "run.name=a", "tracker=none"], directory=place) == 0  # a tracker is no identity
    again = said(place)
    assert "majority class" in again
    assert "steps 1 to" not in again
    assert (run / "model" / "model.safetensors").stat().st_mtime_ns == weights


def test_another_run_under_the_same_name_is_refused_with_the_difference(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    assert zygote.run([*QUICK, "run.name=a", "run.seed=7"], directory=place) == 2
    assert "run.seed: 42 there, 7 here" in said(place)
    assert zygote.run([*QUICK, "run.name=a", "run.seed=7", "run.fresh=true"], directory=place) == 0
    assert (place / "runs" / "a-2" / "report.json").exists()


def test_a_snapshot_goes_on_where_it_stands_or_starts_another_run(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    (place / "runs" / "a").rename(place / "runs" / "moved")
    said(place)
    assert zygote.run(["config=runs/moved"], directory=place) == 0
    assert "steps 1 to" not in said(place)
    assert zygote.run(["config=runs/moved", "run.seed=8", "run.name=b"], directory=place) == 0
    assert (place / "runs" / "b" / "report.json").exists()


def test_changed_data_is_refused(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    (place / "runs" / "a" / "report.json").unlink()
    write_rows(place / "rows.csv", count=71)
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 2
    assert "has changed since it was started: rows.csv" in said(place)


def test_a_finished_run_whose_data_changed_is_refused(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    write_rows(place / "rows.csv", count=71)
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 2
    assert "has changed since it was started: rows.csv" in said(place)


def test_a_finished_run_is_shown_without_its_data_and_from_where_it_was_moved(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    (place / "rows.csv").unlink()
    (place / "runs" / "a").rename(place / "moved")
    said(place)
    assert zygote.run(["config=moved"], directory=place) == 0
    text = said(place)
    assert "majority class" in text
    assert "moved/report.md" in text
    assert "runs/a" not in text


def test_a_missing_page_alone_is_written_again_without_a_start(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    run = place / "runs" / "a"
    starts, report = (run / "attempts.jsonl").read_bytes(), (run / "report.json").stat().st_mtime_ns
    for words in ([*QUICK, "run.name=a"], ["config=runs/a"]):
        (run / "report.html").unlink()
        assert zygote.run(words, directory=place) == 0
        assert "<svg" in (run / "report.html").read_text()
    assert (run / "attempts.jsonl").read_bytes() == starts
    assert (run / "report.json").stat().st_mtime_ns == report


def test_what_is_missing_at_the_end_is_done_again(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    run = place / "runs" / "a"
    weights = (run / "model" / "model.safetensors").read_bytes()
    (run / "report.md").unlink()
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    assert (run / "report.md").exists()
    (run / "report.json").write_text("{")
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    assert json.loads((run / "report.json").read_text())["status"] == "finished"
    for file in (run / "model").iterdir():
        file.unlink()
    (run / "model").rmdir()
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    (run / "benchmark.json").unlink()
    assert zygote.run([*QUICK, "run.name=a", "then=[benchmark]"], directory=place) == 0
    assert (run / "benchmark.json").exists()


def test_damaged_files_are_told(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    run = place / "runs" / "a"
    (place / "new.csv").write_text("text\nthe bank\n")
    (run / "model" / "model.safetensors").write_bytes((run / "model" / "model.safetensors").read_bytes()[:5000])
    said(place)
    words = ["+experiment=infer_bert", "model.source=runs/a", "inferencer.input=new.csv"]
    assert zygote.run(words, directory=place) == 1
    text = said(place)
    assert "CheckpointError: the weights in" in text
    assert "Traceback" not in text
    (run / "config.json").write_text("{")
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 2
    assert "config.json can't be read" in said(place)


def test_two_starts_at_once_one_goes_on_and_the_other_is_refused(place: Path) -> None:
    command = [sys.executable, str(MAIN), *TINY, "run.name=a"]
    both = [
        subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=280)[0] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1], outputs
    refused = outputs[[process.returncode for process in both].index(1)]
    assert "LaunchError" in refused
    assert "Traceback" not in refused
    assert (place / "runs" / "a" / "report.json").exists()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("a good text", "x"), ("", "y"), ("more", "x")] * 4, "rows without text"),
        ([("one text", "x")] * 3 + [("another", "y")], "fewer than"),
        ([(f"text {number}", "x") for number in range(20)], "all 20 train rows have the label 'x'"),
    ],
)
def test_faulty_data_is_told_before_training(
    rows: list[tuple[str, str]], expected: str, zygote: Zygote, place: Path
) -> None:
    with (place / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    words = [*QUICK, "run.name=a", "dataset.splits=null", "dataset.on_repeated_rows=keep"]
    words += ["trainer.training_kwargs.eval_strategy=no"]
    assert zygote.run(words, directory=place) == 2
    text = said(place)
    assert expected in text
    assert "Traceback" not in text
    checked = zygote.run([*words, "operation=check"], directory=place)
    assert checked == 2
    assert expected in said(place)


def test_check_says_ready(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "operation=check"], directory=place) == 0
    text = said(place)
    assert text.rstrip().endswith("ready")
    assert "optimizer steps  " in text
    assert not (place / "runs").exists()


def test_check_finds_every_fault_at_once(zygote: Zygote, place: Path) -> None:
    words = [
        *QUICK,
        "operation=check",
        "dataset.columns.text=txt",
        "dataset.max_length=4000",
        "trainer.peft_kwargs={r: 4, target_modules: [quary]}",
    ]
    assert zygote.run(words, directory=place) == 2
    text = said(place)
    for fault in ("txt", "4000", "quary"):
        assert fault in text


def test_inference_and_benchmark_from_a_run_directory(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*QUICK, "run.name=a"], directory=place) == 0
    (place / "new.csv").write_text("id,text\n7,the striker and the coach\n8,shares of the bank\n")
    words = ["+experiment=infer_bert", "model.source=runs/a", "inferencer.input=new.csv", "inferencer.output=out.csv"]
    assert zygote.run(words, directory=place) == 0, said(place)
    with (place / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["7", "8"]
    assert {row["predicted"] for row in rows} <= {"sports", "business"}
    (place / "new.csv").write_text("id,text\n9,profit\n")  # the same command again, on another file
    assert zygote.run(words, directory=place) == 0
    with (place / "out.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["9"]
    assert zygote.run([*words[:-1], "inferencer.output=new.csv"], directory=place) == 2
    assert "is the input" in said(place)
    words = ["+experiment=benchmark_bert", "model.source=runs/a", "dataset=bert/csv", "dataset.source=rows.csv"]
    assert zygote.run([*words, "dataset.max_length=24", "run.name=bench"], directory=place) == 0
    bench = json.loads((place / "runs" / "bench" / "benchmark.json").read_text())
    trained = json.loads((place / "runs" / "a" / "report.json").read_text())
    assert bench["metrics"] == trained["metrics"]["test"]


def test_the_best_weights_can_be_chosen(zygote: Zygote, place: Path) -> None:
    words = [*TINY, "run.name=a", "trainer.select=best", "trainer.training_kwargs.eval_strategy=steps"]
    words += ["trainer.training_kwargs.eval_steps=3"]
    assert zygote.run(words, directory=place) == 0, said(place)
    report = json.loads((place / "runs" / "a" / "report.json").read_text())
    assert report["best_step"] in report["checkpoint_steps"]


def test_a_failure_is_written_down(zygote: Zygote, place: Path) -> None:
    words = [*QUICK, "run.name=a", "trainer.training_kwargs.learning_rate=1e30"]
    words += ["trainer.training_kwargs.warmup_steps=0", "trainer.training_kwargs.max_grad_norm=0"]
    assert zygote.run(words, directory=place) == 1
    assert "Traceback" not in said(place)
    attempts = [json.loads(line) for line in (place / "runs" / "a" / "attempts.jsonl").read_text().splitlines()]
    assert attempts[-1]["outcome"] == "failed"
    assert attempts[-1]["reason"]


def test_a_sweep_keeps_failures_apart(place: Path) -> None:
    words = [word for word in QUICK if "learning_rate" not in word]
    words += [
        "trainer.training_kwargs.warmup_steps=0",
        "trainer.training_kwargs.max_grad_norm=0",
        "--multirun",
        "trainer.training_kwargs.learning_rate=1e30,1e-3",
    ]
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, str(MAIN), *words], cwd=place, capture_output=True, text=True, timeout=290, check=False
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    [sweep] = (place / "sweeps").iterdir()
    rows = [json.loads(line) for line in (sweep / "runs.jsonl").read_text().splitlines()]
    assert [row["exit_code"] for row in rows] == [1, 0]
    with (sweep / "results.csv").open() as file:
        results = list(csv.DictReader(file))
    assert [row["status"] for row in results] == ["none", "finished"]
    assert float(results[1]["test_accuracy"]) >= 0
    assert "failed (1)" in ended.stdout
    assert time.monotonic() - started < 290
