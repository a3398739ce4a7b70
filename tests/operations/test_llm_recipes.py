"""Every recipe for an open language model passes the check, with the model's real shape on the meta device."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from llm_families import SHAPES
from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.operations import check
from tiny_chats import tiny_chat_tokenizer

GROUPS = read_groups()
_OWN = ("transformers_version", "vocab_size")  # of the library, and of the tokenizer
RECIPES = [name for name in GROUPS.experiments if name.startswith("train_llm/")]


def config_of(*overrides: str) -> Any:
    return validate(compose_command(Command(overrides=overrides), environment={}, groups=GROUPS), environment={})


@pytest.mark.slow  # billions of parameters without memory: seconds each
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_ready(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_chat_tokenizer(model_max_length=4096).save_pretrained(tmp_path / "tokenizer")
    with (tmp_path / "chats.jsonl").open("w") as file:
        for n in range(1000):
            turns = [("user", f"w{n % 90}"), ("assistant", f"w{n % 7} w{n // 90} " + "w5 " * 200)]
            print(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}), file=file)
    config = config_of(f"+experiment={recipe}", "dataset.source=chats.jsonl", "operation=check")
    shape = SHAPES[config.model.source].config().to_diff_dict()
    keys = {key: value for key, value in shape.items() if key not in _OWN and key[0] != "_"}
    model = config.model.model_copy(update={"source": None, "config": keys, "tokenizer": "tokenizer"})
    said = io.StringIO()
    check.run(config.model_copy(update={"model": model}), stream=said)
    assert said.getvalue().endswith("ready\n")
