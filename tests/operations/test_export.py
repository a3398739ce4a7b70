"""`operation=export` through the whole program: after a training, of a finished run, and where it is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tiny_models import save_tiny
from tiny_runs import TINY
from zygote import Zygote

QUICK = [
    *(word for word in TINY if not word.startswith(("model", "trainer.training_kwargs.num_train_epochs"))),
    "model=bert/hub",
    "model.source=base",
    "model.task=sequence_classification",
    "trainer.training_kwargs.num_train_epochs=1",
    "trainer/common/peft_kwargs@trainer.peft_kwargs=lora",
    "trainer/common/bitsandbytes_kwargs@trainer.bitsandbytes_kwargs=nf4",
    "run.name=a",
]


@pytest.fixture
def with_base(place: Path) -> Path:
    save_tiny(place / "base")
    return place


def record(run: Path) -> dict:
    return json.loads((run / "export.json").read_text())


@pytest.mark.slow  # a training and two exports
def test_a_run_is_exported_after_its_training_and_again_on_the_other_base(zygote: Zygote, with_base: Path) -> None:
    assert zygote.run([*QUICK, "then=[export]"], directory=with_base) == 0, (with_base / "output.txt").read_text()
    run = with_base / "runs" / "a"
    first = record(run)
    assert (first["base"], first["compared_on"]) == ("dequantized", "7 validation rows")
    assert set(first["differences"]) == {"original", "dequantized"}
    assert "export: runs/a/merged in float32, merged into the dequantized base" in (run / "report.md").read_text()
    steps = (run / "metrics.jsonl").read_bytes()
    shutil.move(run, with_base / "moved")
    words = ["config=moved", "operation=export", "export.base=original", "export.output=elsewhere"]
    assert zygote.run(words, directory=with_base) == 0, (with_base / "output.txt").read_text()
    assert not (with_base / "runs" / "a").exists()
    second = record(with_base / "moved")
    assert (second["base"], second["output"]) == ("original", "elsewhere")
    assert second["differences"] == first["differences"]
    report = json.loads((with_base / "moved" / "report.json").read_text())
    assert [note[:23] for note in report["notes"] if note.startswith("export:")] == ["export: elsewhere in flo"[:23]]
    assert report["operation"] == "train"
    assert (with_base / "moved" / "metrics.jsonl").read_bytes() == steps
    assert (with_base / "elsewhere" / "model.safetensors").is_file()
    (with_base / "rows.csv").write_text("nothing\n1\n")  # of the data nothing is left: random tokens take its place
    assert zygote.run(words, directory=with_base) == 0
    assert record(with_base / "moved")["compared_on"] == "8 rows of random tokens"


def test_what_was_not_trained_is_not_exported(zygote: Zygote, with_base: Path) -> None:
    assert zygote.run([*QUICK, "operation=export"], directory=with_base) == 2
    text = (with_base / "output.txt").read_text()
    assert "runs/a holds no run of this config that has finished" in text
    assert not (with_base / "runs").exists()
