"""What a command prints at its end."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable

import pytest

from supertrainer.benchmark.console import print_benchmark, print_report
from supertrainer.benchmark.display import columns
from supertrainer.benchmark.results import BenchmarkResult, Report, Sample


def printed(report: Report) -> str:
    stream = io.StringIO()
    print_report(report, stream=stream)
    return stream.getvalue()


EXPECTED = """\
train_bert-1a2b3c4d: train finished after 40 steps (mode toy)
model         org/encoder, 1,000,000 parameters, 250,000 trained (25.0%, lora)
data          reviews.csv: train 80, test 20 rows, 2 classes
time          2 min 05 s, 43.2 rows/s, 5,432 tokens/s, peak memory 1.25 GiB

                split       macro_f1  accuracy    loss
------------------------------------------------------
this model      test          0.8125    0.8000  0.4000
this model      validation    0.7100    0.7000  0.5000
majority class  test          0.3125         -       -
bag of words    test          0.8750         -       -
macro_f1 +0.5000 against majority class, -0.0625 against bag of words

samples of test
  row 3          WRONG  predicted good (0.99), true bad
    fine, thanks

run directory runs/train_bert-1a2b3c4d
report        runs/train_bert-1a2b3c4d/report.md
page          runs/train_bert-1a2b3c4d/report.html
run again:
  supertrainer config=runs/train_bert-1a2b3c4d
"""


def test_whole_ending(make_report: Callable[..., Report]) -> None:
    sample = Sample(row=3, text="fine, thanks", true="bad", predicted="good", probability=0.987)
    assert printed(make_report(samples=(sample,))) == EXPECTED


def test_hundred_columns_and_no_control_characters_whatever_the_texts(
    make_report: Callable[..., Report], nasty: str
) -> None:
    long = "好看" * 300
    report = make_report(
        name="n" * 60,
        data={"source": "s" * 70 + " " + "t" * 90, "rows": {"train": 10**9, "test": 10**9}, "labels": (long, nasty)},
        samples=(
            Sample(row=10**7, text=nasty, true=long, predicted=nasty, probability=1.0),
            Sample(row=1, text=long, true=None, predicted=long),
        ),
        notes=("a note " * 60, nasty),
        commands={
            "infer": "supertrainer +experiment=infer_bert " + " ".join(f"dataset.key_{i}=value_{i}" for i in range(20))
        },
    )
    lines = printed(report).splitlines()
    assert max(map(columns, lines)) <= 100
    assert all(line.isprintable() or "\u200d" in line for line in lines)


def test_a_long_command_can_be_pasted(make_report: Callable[..., Report]) -> None:
    command = "FLAG=1 supertrainer " + " ".join(f"key_{i}='some {i}' \"more {i}\" ~/x{i}" for i in range(12))
    text = printed(make_report(commands={"infer": command}))
    pasted = text.partition("infer:\n")[2]
    assert len(pasted.splitlines()) > 3
    assert shlex.split(pasted.replace("\\\n", "")) == shlex.split(command)
    assert " ".join(pasted.replace("\\\n", "").split()) == " ".join(command.split())  # quotes and ~ as they were


def test_a_command_that_is_no_plain_line_stays_as_it_is(make_report: Callable[..., Report]) -> None:
    command = "echo 'open " + "x " * 80 + "end"
    assert printed(make_report(commands={"infer": command})).endswith(f"infer:\n  {command}\n")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_stream_can_take_it(make_report: Callable[..., Report], encoding: str) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_report(make_report(status="finished \ud800 好"), stream=stream)
    stream.seek(0)
    assert "macro_f1 +0.5000 against majority class" in stream.read()


def test_run_without_metrics_still_ends_in_words(make_report: Callable[..., Report]) -> None:
    text = printed(make_report(metrics={}, scored_split=None, baselines=(), samples=(), status="interrupted"))
    assert text.startswith("train_bert-1a2b3c4d: train interrupted after 40 steps")
    assert "this model" not in text
    assert "runs/train_bert-1a2b3c4d/report.md" in text


def test_benchmark_prints_classes_and_files(make_report: Callable[..., Report]) -> None:
    report = make_report()
    shared = {
        name: getattr(report, name) for name in ("model", "data", "main_metric", "baselines", "per_class", "timing")
    }
    result = BenchmarkResult(split="test", rows=20, metrics={"macro_f1": 0.8125}, **shared)
    stream = io.StringIO()
    print_benchmark(result, directory="runs/x/", stream=stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "benchmark of 20 rows of test"
    assert "bad       0.7500  0.9000  0.8182    10" in lines
    assert lines[-3:] == [
        "run directory runs/x/",
        "result        runs/x/benchmark.json",
        "rows          runs/x/predictions.jsonl",
    ]
