"""An attention whose package isn't there, asked for by its group's option: refused for every task, with a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from check_faults import WORDS
from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.core.errors import Problem
from supertrainer.operations.check import check
from supertrainer.operations.scoring import build_dataset
from tiny_chats import save_tiny_chat
from tiny_vision import save_picture

OPTION = "trainer/common/model_kwargs@trainer.model_kwargs"


def problems(words: list[str]) -> list[Problem]:
    command = parse_command([*words, "operation=check"])
    config: Any = validate(compose_command(command, environment={}, groups=read_groups()), environment={})
    return list(dict.fromkeys(check(config, dataset=build_dataset(config)).problems))


@pytest.fixture(params=["bert", "llm", "mllm"])
def words(request: pytest.FixtureRequest, here: Path) -> list[str]:
    """A command that trains a tiny model of each task, on rows in this directory."""
    if request.param == "bert":
        return WORDS
    mark, model, max_length = "", ["model=llm/hub", "model.source=base"], 64
    if request.param == "llm":
        save_tiny_chat(here / "base")
    else:
        for n in range(16):
            save_picture(here / f"{n}.png", colour=(12 * n, 90, 200))
        mark, model, max_length = "<image>", [], 128  # the experiment's own model is built from nothing
    with (here / "chats.jsonl").open("w") as file:
        for n in range(64):
            turns = [{"role": "user", "content": f"{mark}w{n}"}, {"role": "assistant", "content": "w3 w4"}]
            print(json.dumps({"images": [f"{n % 16}.png"] if mark else [], "messages": turns}), file=file)
    data = [f"dataset={request.param}/messages", "dataset.source=chats.jsonl", f"dataset.max_length={max_length}"]
    return [f"+experiment=train_{request.param}", "mode=toy", *model, *data]


def test_flash_attention_that_is_not_installed_is_told_with_what_would_do(words: list[str]) -> None:
    [problem] = problems([*words, f"{OPTION}=flash_attention_2"])
    assert "attn_implementation=flash_attention_2 needs flash-attn, which is not installed" in problem.what
    assert problem.fix.startswith(f"{OPTION}=sdpa ")
    assert problems([*words, problem.fix.split()[0]]) == []
