"""Every head through the whole program: train, benchmark, predict a file."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from supertrainer.metrics.schema import METRIC_OPTIONS
from tiny_training import write_head_rows
from zygote import Zygote

SCRATCH = [
    "+experiment=train_bert",
    "model=bert/scratch",
    "model.config={model_type: bert, hidden_size: 32, num_attention_heads: 2, num_hidden_layers: 2,"
    " intermediate_size: 64}",
    "dataset=bert/jsonl",
    "dataset.source=rows",
    "dataset.splits={train: train.jsonl, validation: null, test: test.jsonl}",
    "dataset.on_repeated_across_splits=drop",
    "dataset.max_length=48",
    "trainer.global_batch_size=8",
    "trainer.training_kwargs.per_device_train_batch_size=4",
    "trainer.training_kwargs.num_train_epochs=2",
    "trainer.training_kwargs.warmup_steps=1",
    "trainer.training_kwargs.eval_strategy=no",
    "run.name=run",
]
BASELINES = {
    "multi_label": ["majority", "bag of words"],
    "regression": ["mean", "bag of words"],
    "token_classification": ["tag by word"],
    "masked_lm": ["unigram"],
}
INPUT = ["w3 w4 w5", "w6, w9 w1"]


def start(zygote: Zygote, directory: Path, words: list[str]) -> None:
    code = zygote.run(words, directory=directory)
    assert code == 0, (directory / "output.txt").read_text()[-3000:]


@pytest.fixture
def trained(zygote: Zygote, tmp_path: Path, task: str) -> Path:
    """A directory with a finished run of a head, and two files to predict."""
    write_head_rows(tmp_path / "rows" / "train.jsonl", task, 40)
    write_head_rows(tmp_path / "rows" / "test.jsonl", task, 12, seed=1)
    (tmp_path / "new.csv").write_text("id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(INPUT)))
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in INPUT))
    start(zygote, tmp_path, [*SCRATCH, f"model.task={task}", f"metric={METRIC_OPTIONS[task]}"])
    return tmp_path


@pytest.mark.parametrize("task", BASELINES)
def test_a_head_is_trained_scored_and_reported(trained: Path, zygote: Zygote, task: str) -> None:
    report = json.loads((trained / "runs/run/report.json").read_text())
    assert [baseline["name"] for baseline in report["baselines"]] == BASELINES[task]
    main = report["main_metric"]
    assert all(main in scores for scores in [report["metrics"]["test"], *(b["metrics"] for b in report["baselines"])])
    assert set(report["metrics"]["test"]) == set(report["definitions"])
    assert len(report["samples"]) == 3
    words = [word for word in SCRATCH[3:] if word.startswith("dataset")]
    again = ["+experiment=benchmark_bert", "model.source=runs/run", *words, f"metric={METRIC_OPTIONS[task]}"]
    start(zygote, trained, [*again, "run.name=again"])
    assert json.loads((trained / "runs/again/benchmark.json").read_text())["metrics"] == report["metrics"]["test"]
    assert zygote.run([*again, "metric=classification", "run.name=other"], directory=trained) == 2
    assert f"fix: metric={METRIC_OPTIONS[task]}" in (trained / "output.txt").read_text().lower()


def predicted(zygote: Zygote, directory: Path, ending: str) -> list[dict[str, Any]]:
    output = f"out.{ending}"
    words = ["+experiment=infer_bert", "model.source=runs/run", f"inferencer.input=new.{ending}"]
    start(zygote, directory, [*words, f"inferencer.output={output}", f"run.name=infer-{ending}"])
    with (directory / output).open(newline="") as file:
        return list(csv.DictReader(file)) if ending == "csv" else [json.loads(line) for line in file]


@pytest.mark.parametrize("task", ["multi_label"])
def test_labels_of_a_file(trained: Path, zygote: Zygote, task: str) -> None:
    for row, cells in zip(predicted(zygote, trained, "jsonl"), predicted(zygote, trained, "csv"), strict=True):
        shares = {name: row[f"probability_{name}"] for name in ("bad", "fair", "good")}
        assert row["predicted"] == [name for name, share in shares.items() if share >= 0.5]
        assert json.loads(cells["predicted"]) == row["predicted"]


@pytest.mark.parametrize("task", ["regression"])
def test_numbers_of_a_file(trained: Path, zygote: Zygote, task: str) -> None:
    rows = predicted(zygote, trained, "csv")
    assert [list(row) for row in rows] == [["id", "text", "predicted"]] * 2
    assert all(abs(float(row["predicted"])) < 20 for row in rows)


@pytest.mark.parametrize("task", ["token_classification"])
def test_spans_of_a_file(trained: Path, zygote: Zygote, task: str) -> None:
    for row, text in zip(predicted(zygote, trained, "jsonl"), INPUT, strict=True):
        for span in row["entities"]:
            assert list(span) == ["type", "text", "start", "end", "score"]
            assert text[span["start"] : span["end"]] == span["text"]


@pytest.mark.parametrize("task", ["masked_lm"])
def test_a_masked_language_model_predicts_no_file(trained: Path, zygote: Zygote, task: str) -> None:
    words = ["+experiment=infer_bert", "model.source=runs/run", "inferencer.input=new.csv", "run.name=infer"]
    assert zygote.run(words, directory=trained) == 2
    assert "which has no label for a text" in (trained / "output.txt").read_text()


@pytest.mark.parametrize("task", ["masked_lm"])
def test_a_classifier_starts_with_the_weights_of_such_a_run(trained: Path, zygote: Zygote, task: str) -> None:
    """A step at the rate 0 leaves what it started with: the adapted body, and a head that no file held."""
    kept = [word for word in SCRATCH if not word.startswith(("model", "run.name"))]
    still = ["trainer.training_kwargs.learning_rate=0", "trainer.training_kwargs.max_steps=1", "run.name=classifier"]
    start(zygote, trained, [*kept, "model=bert/hub", "model.source=runs/run", *still])
    adapted, found = (load_file(trained / f"runs/{name}/model/model.safetensors") for name in ("run", "classifier"))
    body = {name for name in adapted if name.startswith("bert.")}
    assert len(body) == 37
    assert all(torch.equal(found[name], adapted[name]) for name in body)
    assert {name for name in found if not name.startswith("bert.pooler.")} - body == {
        "classifier.weight",
        "classifier.bias",
    }
    assert found["classifier.weight"].shape == (3, 32)
    assert found["classifier.weight"].std() > 0.01
