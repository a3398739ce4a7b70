"""Validation rows that are answered while a language model is trained: written down, and without effect on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from supertrainer.core.records import read_records
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.generation import generate
from supertrainer.inference.schema import GenerationConfig
from tiny_llm import llm_trainer, save_decoder
from tiny_models import tiny_tokenizer

TEMPLATE = "{% for message in messages %}{{ message.content }} {% endfor %}"
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.3}
KWARGS = {"eval_strategy": "steps", "eval_steps": 2, "num_train_epochs": 2, "learning_rate": 1e-2}


def conversation(split: str, number: int) -> Conversation:
    return Conversation(({"role": "user", "content": f"w{number} w1"}, {"role": "assistant", "content": "w2 w3"}))


def trained(run: Path, source: Path, *, sample_rows: int = 3, **keys: Any) -> Any:
    trainer = llm_trainer(
        run, source, training_kwargs={**KWARGS, **keys.pop("training_kwargs", {})}, sample_rows=sample_rows, **keys
    )
    trainer.dataset.conversation = conversation
    trainer.model.tokenizer = lambda: tiny_tokenizer(chat_template=TEMPLATE)
    trainer.train()
    return trainer


def samples(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
def test_each_evaluation_answers_and_training_is_the_same(tmp_path: Path, peft_kwargs: dict[str, Any] | None) -> None:
    source = save_decoder(tmp_path / "source")
    checkpointing = {"gradient_checkpointing": True}
    trainer = trained(tmp_path / "with", source, peft_kwargs=peft_kwargs, training_kwargs=checkpointing)
    trained(tmp_path / "without", source, peft_kwargs=peft_kwargs, training_kwargs=checkpointing, sample_rows=0)
    [ours], [plain] = ((tmp_path / run / "model").glob("*model.safetensors") for run in ("with", "without"))
    assert {name: tensor.tolist() for name, tensor in load_file(ours).items()} == {
        name: tensor.tolist() for name, tensor in load_file(plain).items()
    }
    assert not (tmp_path / "without" / "samples.jsonl").exists()
    rows = samples(tmp_path / "with")
    assert [(row["step"], row["row"]) for row in rows] == [(step, row) for step in (2, 4, 6) for row in (0, 3, 6)]
    assert {row["reference"] for row in rows} == {"w2 w3"}
    last = [row for row in rows if row["step"] == 6]
    prompts = [render_prompt(conversation("", row["row"]).prompt, trainer.tokenizer) for row in last]
    config = GenerationConfig(max_new_tokens=64)
    with torch.no_grad():
        found = dict(generate(trainer.module, trainer.tokenizer, prompts, config=config, batch_size=1))
    assert [row["generated"] for row in last] == [found[number][0].text for number in range(3)]
    assert all(row["generated"].split() for row in last)
    evaluations = [row for row in read_records(tmp_path / "with" / "metrics.jsonl").rows if "eval_loss" in row]
    assert len(evaluations) == 3
    assert {"eval_sample_chrf", "eval_sample_ended", "eval_sample_answer_tokens"} <= evaluations[0].keys()


def test_rows_that_are_no_conversations_are_not_answered(tmp_path: Path) -> None:
    llm_trainer(tmp_path / "run", save_decoder(tmp_path / "source"), training_kwargs=KWARGS).train()
    assert not (tmp_path / "run" / "samples.jsonl").exists()
