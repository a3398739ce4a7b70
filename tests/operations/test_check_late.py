"""Checks as processes: their exit codes, ids of the Hub, and what a training would have met late, and does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from check_faults import FAULTS, KWARGS, WORDS, cut_off
from loopback_hub import LoopbackHub
from zygote import Zygote

MAIN = Path(__file__).parents[2] / "src" / "supertrainer" / "main.py"


@pytest.mark.slow
def test_a_misspelt_hub_id_is_told_for_model_and_data(base: Path, here: Path, tmp_path: Path) -> None:
    with LoopbackHub() as hub:
        hub.add("someone/encoder", base)
        words = [*WORDS, "model.source=someone/encodr", "dataset=bert/hub", "dataset.source=someone/reviewz"]
        ended = subprocess.run(
            [sys.executable, str(MAIN), *words, "operation=check"],
            env={**os.environ, **hub.environment(cache=tmp_path / "cache")},
            capture_output=True, text=True, timeout=400, check=False,
        )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "model.source=someone/encodr: no such local path, and no such model on the Hub." in ended.stderr
    assert "dataset.source=someone/reviewz can't be read from the Hub" in ended.stderr
    assert "Traceback" not in ended.stderr


LATE = ["a base without safetensors", "weights that are cut off", "an evaluation without validation rows"]


@pytest.mark.parametrize("name", LATE)
def test_a_training_would_have_met_it_after_it_began(name: str, here: Path, zygote: Zygote) -> None:
    broken, words, _, _ = FAULTS[name]
    broken(here)
    assert zygote.run([*WORDS, *words, "run.name=a"], directory=here) in (1, 2)
    attempts = [json.loads(line) for line in (here / "runs" / "a" / "attempts.jsonl").read_text().splitlines()]
    assert attempts[-1]["outcome"] == "failed"
    assert (here / "runs" / "a" / "data.json").is_file()  # it had read all the rows by then


def test_a_check_ends_with_two_or_with_ready(here: Path, zygote: Zygote) -> None:
    assert zygote.run([*WORDS, "operation=check"], directory=here) == 0
    assert (here / "output.txt").read_text().endswith("ready\n")
    cut_off(here)
    assert zygote.run([*WORDS, "operation=check"], directory=here) == 2
    assert "Traceback" not in (here / "output.txt").read_text()


def test_a_training_is_refused_what_a_check_refuses_of_its_length(here: Path, zygote: Zygote) -> None:
    assert zygote.run([*WORDS, f"{KWARGS}.warmup_steps=500", "run.name=a"], directory=here) == 2
    assert "warmup_steps=500: the run has 18 steps" in (here / "output.txt").read_text()
    assert not list((here / "runs" / "a" / "checkpoints").glob("step-*"))
