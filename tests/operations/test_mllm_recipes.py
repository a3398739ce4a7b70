"""Every recipe and every model for pictures passes the check, with the model's real shape on the meta device."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from mllm_families import FURTHER_SHAPES, SHAPES, Shape
from published_processors import save_published
from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.operations import check
from tiny_remote_code import save_sketch, save_weights
from tiny_vision import LLAVA, save_picture

GROUPS = read_groups()


def text_of(recipe: str) -> str:
    return GROUPS.files[f"experiment/{recipe}"].read_text()


RECIPES = [name for name in GROUPS.experiments if name.startswith("train_mllm/")]

SOURCES = {
    option: OmegaConf.load(GROUPS.files[f"model/mllm/{option}"]).get("source")
    for option in GROUPS.options["model/mllm"]
}
OTHERS = [
    option
    for option, source in SOURCES.items()
    if source in SHAPES and not any(f"mllm/{option}\n" in text_of_recipe for text_of_recipe in map(text_of, RECIPES))
]


def config_of(*overrides: str) -> Any:
    return validate(compose_command(Command(overrides=overrides), environment={}, groups=GROUPS), environment={})


def write_rows(place: Path, *, count: int = 600) -> None:
    """Conversations with one picture, two or none, and questions, about eight pictures."""
    for n in range(8):
        save_picture(place / f"{n}.png", 320 + 40 * n, 240, colour=(30 * n, 90, 200))
    with (place / "chats.jsonl").open("w") as chats, (place / "questions.jsonl").open("w") as questions:
        for n in range(count):
            names = [f"{n % 8}.png"] * (n % 3)
            turns = [("user", "<image>\n" * len(names) + f"What is {n}?"), ("assistant", f"It is {n // 7}.")]
            talk = [{"role": role, "content": text} for role, text in turns]
            print(json.dumps({"images": names, "messages": talk}), file=chats)
            print(
                json.dumps({"image": f"{n % 8}.png", "question": f"Is it {n}?", "answer": f"{n % 7}"}), file=questions
            )


def checked(config: Any, shape: Shape | None = None) -> str:
    """What the check says of a config with the published model in `source`."""
    save_published(shape or SHAPES[config.model.source], Path("source"))
    said = io.StringIO()
    model = config.model.model_copy(update={"source": "source"})
    check.run(config.model_copy(update={"model": model}), stream=said)
    return said.getvalue()


@pytest.mark.slow  # billions of parameters without memory: seconds each
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_ready(recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    asks = "/dataset: mllm/question_answer" in text_of(recipe)
    file = "questions.jsonl" if asks else "chats.jsonl"
    said = checked(config_of(f"+experiment={recipe}", f"dataset.source={file}", "operation=check"))
    assert said.endswith("ready\n")


@pytest.mark.slow
@pytest.mark.parametrize("option", OTHERS)
def test_a_model_without_a_recipe_of_its_own_is_ready(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    words = [f"model=mllm/{option}", "dataset.source=chats.jsonl", "dataset.max_length=2048"]
    words += ["dataset.on_too_long=drop", "operation=check"]
    assert checked(config_of("+experiment=train_mllm/qwen2_5_vl", *words)).endswith("ready\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", FURTHER_SHAPES)
def test_a_text_side_of_another_kind_is_ready(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    words = ["model=mllm/hub", "model.source=source", "dataset.source=questions.jsonl", "dataset.max_length=1024"]
    config = config_of("+experiment=train_mllm/paligemma", "operation=check", *words)
    said = checked(config, FURTHER_SHAPES[name])
    assert said.endswith("ready\n")
    assert "language: k_proj × 32" in said


def test_a_model_with_code_of_its_own_is_ready_where_the_code_may_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path)
    save_weights(save_sketch(tmp_path / "source"))
    (tmp_path / "asks.jinja").write_text(LLAVA)
    towers = "model.tower_modules={vision: ['eye\\.'], projector: ['bridge\\.'], language: ['mouth\\.', 'lm_head']}"
    words = ["model=mllm/hub", "model.source=source", towers, "dataset.source=questions.jsonl", "dataset.max_length=64"]
    words += [
        "+experiment=train_mllm/paligemma",
        "operation=check",
        "model.trust_remote_code=true",
        "dataset.chat_template=asks.jinja",
    ]
    said = io.StringIO()
    check.run(config_of(*words), stream=said)
    assert said.getvalue().endswith("ready\n")
