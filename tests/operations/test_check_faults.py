"""Broken configs and data sets: a check names each fault at once, with its value and the way out; in this process."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path

import pytest

from check_faults import FAULTS, KWARGS, WORDS, cut_off
from supertrainer.core.errors import Problem, SupertrainerError
from tiny_models import tiny_tokenizer


def found(*words: str) -> list[Problem]:
    """What composing, validating and checking a command say is wrong."""
    from supertrainer.config.command import parse_command
    from supertrainer.config.front_door import compose_command
    from supertrainer.config.groups import read_groups
    from supertrainer.config.validate import validate
    from supertrainer.operations.check import check
    from supertrainer.operations.scoring import build_dataset

    command = parse_command([*WORDS, "operation=check", *words])
    try:
        composed = compose_command(command, environment={}, groups=read_groups(command.config_dirs))
        config = validate(composed, environment={})
        return list(dict.fromkeys(check(config, dataset=build_dataset(config)).problems))
    except SupertrainerError as error:
        return list(error.problems)


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_named_with_its_value_and_a_fix(name: str, here: Path) -> None:
    broken, words, what, fix = FAULTS[name]
    broken(here)
    problems = found(*words)
    told = [problem for problem in problems if what in problem.what]
    assert told, [str(problem) for problem in problems]
    assert fix in told[0].fix
    assert len(problems) == 1, [str(problem) for problem in problems]
    assert not (here / "runs").exists()


def test_without_a_fault_nothing_is_said(here: Path) -> None:
    assert found() == []
    assert len(FAULTS) >= 30


def test_tokens_that_the_model_does_not_know_are_no_fault(here: Path) -> None:
    """Their rows are added: the embedding isn't of the shape in the source's file, and needn't be."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<ticker>", "<url>"])
    tokenizer.save_pretrained(here / "base")
    assert found() == []


def test_a_full_disk_is_told_with_what_is_needed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = collections.namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))
    [problem] = found()
    assert "0.00 GiB free" in problem.what
    assert "trainer.keep_last=1" in problem.fix


def test_faults_of_data_model_and_recipe_come_together(here: Path) -> None:
    cut_off(here)
    words = ["dataset.columns.text=body", "dataset.max_length=65", f"{KWARGS}.lr_scheduler_type=cosine_with_min_lr"]
    told = " ".join(problem.what for problem in found(*words, "trainer.peft_kwargs={r: 4, target_modules: [vlaue]}"))
    for fault in ("'body'", "max_length=65", "model.safetensors can't be read", "'vlaue'", "cosine_with_min_lr"):
        assert fault in told
