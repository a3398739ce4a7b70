"""A run killed at any moment and started again ends as one that was never killed."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest

from supertrainer.core.records import last_per_step, read_records
from tiny_runs import TINY
from zygote import Zygote

LORA = "trainer/common/peft_kwargs@trainer.peft_kwargs=lora"


def weights(run: Path) -> bytes:
    [file] = [*run.glob("model/model.safetensors"), *run.glob("model/adapter_model.safetensors")]
    return file.read_bytes()


def losses(run: Path) -> list[tuple[int, float]]:
    rows = last_per_step(read_records(run / "metrics.jsonl").rows)
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


@pytest.mark.timeout(1800)  # a minute on quiet cores
@pytest.mark.parametrize("method", ["full", "lora"])
def test_twenty_kills_at_random_moments(method: str, zygote: Zygote, place: Path) -> None:
    words = [*TINY, *([LORA] if method == "lora" else [])]
    started = time.monotonic()
    assert zygote.run([*words, "run.name=whole"], directory=place) == 0, (place / "output.txt").read_text()[-3000:]
    seconds = time.monotonic() - started
    chance = random.Random(method)
    kills = finished = number = 0
    while kills < (20 if method == "full" else 8):
        code = zygote.run(
            [*words, f"run.name=killed-{number}"], directory=place, kill_after=chance.uniform(0.05, 0.8 * seconds)
        )
        assert code in (0, -signal.SIGKILL), (place / "output.txt").read_text()[-3000:]
        kills += code == -signal.SIGKILL
        if code == 0:
            finished, number = finished + 1, number + 1
    assert zygote.run([*words, f"run.name=killed-{number}"], directory=place) == 0
    for index in range(number + 1):
        run = place / "runs" / f"killed-{index}"
        assert weights(run) == weights(place / "runs" / "whole")
        assert losses(run) == losses(place / "runs" / "whole")
        assert (
            json.loads((run / "report.json").read_text())["metrics"]
            == json.loads((place / "runs" / "whole" / "report.json").read_text())["metrics"]
        )


def test_a_half_written_checkpoint_is_skipped_with_a_message(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*TINY, "run.name=whole"], directory=place) == 0
    assert zygote.run([*TINY, "run.name=cut"], directory=place) == 0
    run = place / "runs" / "cut"
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    content = (newest / "model.safetensors").read_bytes()
    (newest / "model.safetensors").write_bytes(content[: len(content) // 2])
    (run / "report.json").unlink()
    assert zygote.run([*TINY, "run.name=cut"], directory=place) == 0
    assert f"{newest.name}" in (place / "output.txt").read_text().rpartition("starting")[2]
    assert weights(run) == weights(place / "runs" / "whole")


def test_extending_a_finished_run_equals_the_longer_run(zygote: Zygote, place: Path) -> None:
    longer = "trainer.training_kwargs.num_train_epochs=6"
    assert zygote.run([*TINY, "run.name=short"], directory=place) == 0
    assert zygote.run([*TINY, longer, "run.name=short"], directory=place) == 2
    assert "run.extend=true goes on with it" in (place / "output.txt").read_text()
    assert zygote.run([*TINY, longer, "run.name=short", "run.extend=true"], directory=place) == 0
    assert zygote.run([*TINY, longer, "run.name=long"], directory=place) == 0
    assert weights(place / "runs" / "short") == weights(place / "runs" / "long")
    # The run without a name of its own is found by its identity; its snapshot extends too.
    assert zygote.run(TINY, directory=place) == 0
    [unnamed] = (place / "runs").glob("train_bert-*")
    assert zygote.run([f"config={unnamed}", longer, "run.extend=true"], directory=place) == 0
    assert weights(unnamed) == weights(place / "runs" / "long")


def test_a_schedule_that_depends_on_the_length_cannot_be_extended(zygote: Zygote, place: Path) -> None:
    words = [*TINY, "trainer.training_kwargs.lr_scheduler_type=linear", "run.name=a"]
    assert zygote.run(words, directory=place) == 0
    longer = "trainer.training_kwargs.num_train_epochs=6"
    assert zygote.run([*words, longer, "run.extend=true"], directory=place) == 2
    assert "going on would not equal it" in (place / "output.txt").read_text()


def test_an_interrupt_saves_and_the_same_command_goes_on(zygote: Zygote, place: Path) -> None:
    assert zygote.run([*TINY, "run.name=whole"], directory=place) == 0
    metrics = place / "runs" / "cut" / "metrics.jsonl"
    code = zygote.run(
        [*TINY, "run.name=cut"],
        directory=place,
        kill_when=lambda: metrics.exists() and len(read_records(metrics).rows) >= 4,
        signal_number=signal.SIGINT,
    )
    assert code == 130
    attempts = read_records(place / "runs" / "cut" / "attempts.jsonl").rows
    assert attempts[-1]["outcome"] == "interrupted"
    assert zygote.run([*TINY, "run.name=cut"], directory=place) == 0
    assert weights(place / "runs" / "cut") == weights(place / "runs" / "whole")
