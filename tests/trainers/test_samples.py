"""Sample answers while training: they show the model as it is, and leave no trace in it."""

from __future__ import annotations

import contextlib
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import torch

from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.generation import generate
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.loading import quiet_transformers
from supertrainer.trainers.samples import SampleGenerations, sample_prompts
from supertrainer.trainers.samples_file import write_samples
from tiny_chats import POSITIONS, TEMPLATE, tiny_chat_model, tiny_chat_tokenizer

TOKENIZER = tiny_chat_tokenizer()
SCALARS = {f"sample_{name}" for name in ("exact_match", "answer_f1", "chrf", "rouge_l", "ended", "answer_tokens")}


ROWS: list[list[dict[str, str]]] = [
    [{"role": "user", "content": f"w{n}"}, {"role": "assistant", "content": f"w{n + 1} w{n + 2}"}] for n in range(6)
]
ROWS[2] = ROWS[2][:1]
ROWS[4] = [{"role": "user", "content": "w1 " * POSITIONS}, ROWS[4][1]]


class Chats:
    """Validation rows: an exchange each; one without an answer, and one whose prompt fills all positions."""

    def load(self) -> dict[str, Any]:
        return {"validation": ROWS}

    def conversation(self, split: str, number: int) -> Conversation:
        return Conversation(tuple(ROWS[number]))


def test_a_row_that_the_template_refuses_is_not_asked() -> None:
    template = "{% if 'w3' in messages[0].content %}{{ raise_exception('no w3') }}{% endif %}" + TEMPLATE
    tokenizer = tiny_chat_tokenizer(chat_template=template)
    found = sample_prompts(Chats(), "validation", count=6, tokenizer=tokenizer, module=tiny_chat_model())
    assert [prompt.row for prompt in found] == [0, 1, 5], "2 has no answer, 3 is refused, 4 is too long"


def samples_of(path: Path, module: Any, *, count: int = 6, **keys: Any) -> SampleGenerations:
    prompts = sample_prompts(Chats(), "validation", count=count, tokenizer=TOKENIZER, module=module)
    return SampleGenerations(prompts, tokenizer=TOKENIZER, path=path / "samples.jsonl", max_new_tokens=8, **keys)


def at_step(samples: SampleGenerations, step: int) -> SampleGenerations:
    state: Any = SimpleNamespace(global_step=step)
    samples.on_step_end(None, state, None)  # type: ignore[arg-type]
    return samples


def written(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "samples.jsonl").read_text().splitlines()]


def being_trained() -> Any:
    """A model in the middle of training: dropout, gradient checkpointing, no cache, an adapter with its head frozen."""
    with quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # a later library has another name for checkpointing
        model = tiny_chat_model(attention_dropout=0.5, use_cache=False)
        model.gradient_checkpointing_enable()
        config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], lora_dropout=0.5, task_type="CAUSAL_LM")
        adapted = peft.get_peft_model(model, config)
    adapted.train()
    adapted.base_model.model.lm_head.eval()
    return adapted


def test_rows_without_answer_or_room_are_left_out() -> None:
    module = tiny_chat_model()
    prompts = sample_prompts(Chats(), "validation", count=6, tokenizer=TOKENIZER, module=module)
    assert [(prompt.row, prompt.text, prompt.reference) for prompt in prompts] == [
        (0, "w0", "w1 w2"),
        (1, "w1", "w2 w3"),
        (3, "w3", "w4 w5"),
        (5, "w5", "w6 w7"),
    ]
    assert list(prompts[0].ids) == render_prompt([{"role": "user", "content": "w0"}], TOKENIZER)
    few = sample_prompts(Chats(), "validation", count=2, tokenizer=TOKENIZER, module=module)
    assert [prompt.row for prompt in few] == [0, 3]
    assert sample_prompts(Chats(), "validation", count=0, tokenizer=TOKENIZER, module=module) == []


def test_the_answers_are_those_of_the_model_at_rest(tmp_path: Path) -> None:
    module = being_trained()
    scalars = at_step(samples_of(tmp_path, module), 3)(module)
    assert scalars.keys() == SCALARS
    rows = written(tmp_path)
    assert [(row["step"], row["row"], row["reference"]) for row in rows] == [
        (3, 0, "w1 w2"),
        (3, 1, "w2 w3"),
        (3, 3, "w4 w5"),
        (3, 5, "w6 w7"),
    ]
    plain = tiny_chat_model()  # a fresh adapter adds nothing
    for row in rows:
        prompt = render_prompt([{"role": "user", "content": row["prompt"]}], TOKENIZER)
        [(_, [answer])] = generate(plain, TOKENIZER, [prompt], config=GenerationConfig(max_new_tokens=8), batch_size=1)
        assert (row["generated"], row["finish"]) == (answer.text, answer.finish)


def test_training_goes_on_as_if_nothing_had_been_asked(tmp_path: Path) -> None:
    def step(module: Any, *, with_samples: bool) -> tuple[torch.Tensor, list[bool]]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        if with_samples:
            samples_of(tmp_path, module)(module)
        drawn = torch.rand(1), random.random(), np.random.rand()
        assert drawn == (torch.tensor([0.49625658988952637]), 0.8444218515250481, 0.5488135039273248)
        ids = torch.randint(8, 90, (2, 12))
        module(input_ids=ids, labels=ids).loss.backward()
        gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
        return torch.cat([gradient.flatten() for gradient in gradients]), [one.training for one in module.modules()]

    plain, asked = step(being_trained(), with_samples=False), step(being_trained(), with_samples=True)
    assert plain[0].abs().sum() > 0
    assert torch.equal(plain[0], asked[0])
    assert plain[1] == asked[1]
    assert not all(asked[1])


def test_the_config_is_left_alone(tmp_path: Path) -> None:
    module = being_trained()
    before = module.config.to_dict(), module.generation_config.to_dict()
    samples_of(tmp_path, module)(module)
    assert (module.config.to_dict(), module.generation_config.to_dict()) == before


def test_a_resumed_run_replaces_the_rows_of_a_step(tmp_path: Path) -> None:
    module = tiny_chat_model()
    samples = samples_of(tmp_path, module, count=2)
    for step in (2, 4):
        at_step(samples, step)(module)
    changed = tiny_chat_model(seed=1)
    resumed = samples_of(tmp_path, changed, count=2)
    state: Any = SimpleNamespace(global_step=2)
    resumed.on_train_begin(None, state, None)  # type: ignore[arg-type]
    earlier = written(tmp_path)
    at_step(resumed, 4)(changed)
    rows = written(tmp_path)
    assert [row["step"] for row in rows] == [2, 2, 4, 4]
    assert rows[:2] == earlier[:2]
    assert rows[2:] != earlier[2:]


def test_a_torn_line_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    path.write_text('{"step": 1, "row": 0}\n{"step": 2, "ro')
    write_samples(path, [{"step": 2, "row": 0}], step=2)
    assert written(tmp_path) == [{"step": 1, "row": 0}, {"step": 2, "row": 0}]


def test_the_model_is_asked_inside_what_it_needs(tmp_path: Path) -> None:
    module, inside = tiny_chat_model(), []

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        hook = module.register_forward_pre_hook(lambda *_: inside.append(True))
        yield
        hook.remove()

    samples_of(tmp_path, module, around=around)(module)
    module(input_ids=torch.tensor([[2]]))
    assert len(inside) == 8


@pytest.mark.parametrize("split", [[], [({"role": "text", "content": "w1"},)]])
def test_without_prompts_nothing_is_written(tmp_path: Path, split: list[Any]) -> None:
    dataset = SimpleNamespace(
        load=lambda: {"validation": split}, conversation=lambda _, number: Conversation(split[number])
    )
    module = tiny_chat_model()
    prompts = sample_prompts(dataset, "validation", count=3, tokenizer=TOKENIZER, module=module)
    samples = SampleGenerations(prompts, tokenizer=TOKENIZER, path=tmp_path / "samples.jsonl")
    assert samples(module) == {}
    assert not (tmp_path / "samples.jsonl").exists()
