"""`operation=verify` from outside: its table, its file, its exit code, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supertrainer.config.identity import run_name
from supertrainer.core.errors import ConfigError, DataError, SupertrainerError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations import verify
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.verification.rows import Row, not_applicable, within
from supertrainer.operations.verification.workbench import Workbench
from tiny_runs import TINY
from tiny_verification import LORA, tiny_config, tiny_workbench
from tiny_verification_of_pretraining import corpus_words
from zygote import Zygote

MAIN = Path(__file__).parents[2] / "src" / "supertrainer" / "main.py"
OWN_TRAINER = '''
from supertrainer.trainers.bert import BertTrainer
from supertrainer.trainers.losses import Objective

class MeanTrainer(BertTrainer):
    """Averages over each micro-batch, as if all had the same number of rows."""

    def objective(self):
        exact = super().objective()
        return Objective(lambda logits, labels: exact.summed(logits, labels) / max(len(labels), 1), exact.weight)
'''
OWN_SCHEMA = '''
from supertrainer.trainers.schema import BertTrainerConfig

class MeanTrainerConfig(BertTrainerConfig):
    """As that of its base."""
'''


def test_a_config_that_holds_ends_with_0_and_leaves_its_table_alone(zygote: Zygote, place: Path) -> None:
    words = [*TINY, LORA, "operation=verify", "run.name=a", "trainer.training_kwargs.num_train_epochs=50"]
    assert zygote.run(words, directory=place) == 0, (place / "output.txt").read_text()
    text = (place / "output.txt").read_text()
    assert "14 hold, 1 measured without a promise, 1 not applicable  ·  runs/a/verify.json" in text
    run = place / "runs" / "a"
    found = json.loads((run / "verify.json").read_text())
    assert (found["verdict"], found["adapter"], found["rows"]) == ("holds", True, 11)
    [processes] = [row for row in found["checks"] if "2 processes" in row["check"]]
    assert 0 < processes["value"] < 1e-5  # summed in another order, so not equal to the bit: they were two
    assert {path.name for path in run.iterdir()} == {
        "attempts.jsonl", "config.json", "config.yaml", "environment.json", "logs", "verify.json",
    }  # fmt: skip
    assert {path.name for path in (run / "logs").iterdir()} == {
        "run.log", "verify-two-processes-rank0.log", "verify-two-processes-rank1.log",
    }  # fmt: skip


def test_a_pretraining_that_holds_ends_with_0_and_leaves_its_table_alone(zygote: Zygote, tmp_path: Path) -> None:
    """Half a minute, for two processes that import everything: the one test that starts them for all of their rows."""
    words = ["+experiment=pretrain", "operation=verify", "mode=toy", "run.name=a", *corpus_words(tmp_path)]
    assert zygote.run(words, directory=tmp_path) == 0, (tmp_path / "output.txt").read_text()
    text = (tmp_path / "output.txt").read_text()
    assert "on the config's own decoder, 2 layers of width 128" in text
    assert "56 hold  ·  runs/a/verify.json" in text
    assert "WARNING" not in text
    run = tmp_path / "runs" / "a"
    found = json.loads((run / "verify.json").read_text())
    assert (found["verdict"], found["task"], found["rows_of_a_step"]) == ("holds", "pretraining", 8)
    values = {row["check"]: row["value"] for row in found["checks"]}
    for name in ("DDP", "FSDP2"):
        assert 0 < values[f"2 processes by {name} = one: weights of 3 steps"] < 1e-5  # added in another order: two
    assert {path.name for path in run.iterdir()} == {
        "attempts.jsonl", "config.json", "config.yaml", "environment.json", "logs", "verify.json",
    }  # fmt: skip


def test_a_trainer_of_micro_batch_means_ends_with_1(place: Path) -> None:
    own = place / "own"
    own.mkdir()
    for name, text in (("__init__", ""), ("trainers", OWN_TRAINER), ("schema", OWN_SCHEMA)):
        (own / f"{name}.py").write_text(text)
    words = [
        *TINY,
        "operation=verify",
        "run.name=a",
        "allow_targets=[own]",
        "trainer._target_=own.trainers.MeanTrainer",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(
        [sys.executable, str(MAIN), *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    verdicts = {
        row["check"]: row["verdict"] for row in json.loads((place / "runs" / "a" / "verify.json").read_text())["checks"]
    }
    breaking = [check for check, verdict in verdicts.items() if verdict == "BREAKS"]
    assert len([check for check in breaking if check.startswith("split:")]) == 3  # the two processes too
    assert {check.split(":")[0] for check in breaking} == {"split", "padding"}
    assert "SupertrainerError: 4 of 16 checks break: padding: loss" in ended.stderr
    assert "Traceback" not in ended.stderr
    attempts = [json.loads(line) for line in (place / "runs" / "a" / "attempts.jsonl").read_text().splitlines()]
    assert attempts[-1]["outcome"] == "failed"


def verified(place: Path, monkeypatch: pytest.MonkeyPatch, *rows: Row) -> RunDirectory:
    """What is left of a verification whose checks come to these rows."""

    def checks(bench: Workbench) -> Iterator[Row]:
        (bench.directory / "something").mkdir(parents=True)
        yield from rows

    monkeypatch.setattr(verify, "_checks", checks)
    directory = RunDirectory(place / "run")
    directory.create()
    verify.run(tiny_config(place), OpenRun(directory, 1))
    return directory


def test_only_a_break_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [within("x", 9.0, bound=1e-5, unpromised="int8"), not_applicable("y", "no adapter")]
    assert json.loads(verified(tmp_path, monkeypatch, *rows).verify_json.read_text())["verdict"] == "holds"


def test_a_break_is_written_down_before_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SupertrainerError, match="1 of 2 checks break: x") as raised:
        verified(tmp_path, monkeypatch, within("x", 2e-5, bound=1e-5), within("y", 0.0, bound=1e-5))
    assert raised.value.exit_code == 1
    assert json.loads((tmp_path / "run" / "verify.json").read_text())["verdict"] == "breaks"
    assert "BREAKS" in capsys.readouterr().out
    assert not (tmp_path / "run" / verify.WORK_FOLDER).exists()


def test_too_few_rows_are_refused(tmp_path: Path) -> None:
    lines = [f"text number {n},{('sports', 'business')[n % 2]}" for n in range(4)]
    (tmp_path / "rows.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    words = ["dataset.splits=null", "trainer.training_kwargs.eval_strategy=no"]
    with pytest.raises(DataError, match=r"needs 5 training rows, and there are 4\."):
        tiny_workbench(tmp_path, *words)


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"(?s)operation=verify in 2 processes\..*starts those two itself"):
        tiny_config(tmp_path)


def test_a_format_that_only_a_gpu_computes_can_be_verified_without_one(tmp_path: Path) -> None:
    assert tiny_config(tmp_path, "+trainer.training_kwargs.bf16=true").operation == "verify"


def test_the_run_directory_stands_beside_that_of_the_training(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    assert run_name(config).startswith("train_bert-verify-")
    assert run_name(config.model_copy(update={"operation": "train"})).startswith("train_bert-")
