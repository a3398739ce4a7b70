"""The chat template: which one, whether it fits, saved and read back, and told when it is another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from chat_rows import CHATML, talk
from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.chat.rendering import render, render_prompt
from supertrainer.data.chat.template import (
    apply_template_choice,
    require_same_template,
    template_hash,
    template_source,
)
from supertrainer.data.schema import TEMPLATES, LlmDatasetConfig

FITS_EVERY_TOKENIZER = ("alpaca", "plain")


def reread(tokenizer: Any, directory: Path) -> Any:
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


def full(make_tokenizer: Any) -> Any:
    """A tokenizer that has every token of the shipped templates."""
    tokenizer = make_tokenizer(None, eos="</s>")
    names = ["<start_of_turn>", "<end_of_turn>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    tokenizer.add_special_tokens({"extra_special_tokens": names})
    return tokenizer


RENDERED = {
    "alpaca": "<s>s\n\n### Instruction:\nHi\n\n### Response:\nHello</s>\n\n### Instruction:\nBye\n\n### Response:\n",
    "chatml": "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello"
    "<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
    "gemma": "<s><start_of_turn>user\ns\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
    "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
    "llama3": "<s><|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>user"
    "<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral": "<s>[INST] s\n\nHi [/INST] Hello</s>[INST] Bye [/INST]",
    "plain": "<s>sHiHello</s>Bye",
}
ENDS = {"chatml": "<|im_end|>", "gemma": "<end_of_turn>", "llama3": "<|eot_id|>"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_shipped_template_writes_a_conversation(name: str, make_tokenizer: Any) -> None:
    tokenizer = full(make_tokenizer)
    apply_template_choice(tokenizer, name)
    messages = talk("Hi", "Hello", "Bye", system="s")
    assert render(messages, tokenizer, add_generation_prompt=True).text == RENDERED[name]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_shipped_template_marks_what_is_learnt(name: str, dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    end = ENDS.get(name, "</s>")
    first = " " if name == "mistral" else ""
    data = dataset([{"messages": talk("Hi", "Hello", "Bye", "So long")}], chat_template=name)
    assert learnt(data, full(make_tokenizer)) == [[f"{first}Hello{end}", f"{first}So long{end}"]]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_marks_of_a_shipped_template_are_what_is_found_without_them(
    name: str, dataset: Any, make_tokenizer: Any, learnt: Any, tmp_path: Path
) -> None:
    text = template_source(name)
    for mark in ("{%- generation -%}", "{%- endgeneration -%}"):
        assert mark in text
        text = text.replace(mark, "")
    (tmp_path / "bare.jinja").write_text(text)
    rows = [{"messages": talk("Hi", "Hello", "Bye", "So long")}]
    bare = dataset(rows, chat_template=str(tmp_path / "bare.jinja"))
    assert learnt(bare, full(make_tokenizer)) == learnt(dataset(rows, chat_template=name), full(make_tokenizer))


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name not in FITS_EVERY_TOKENIZER])
def test_a_template_whose_tokens_are_missing_is_refused(name: str) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    letters = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(ConfigError, match=rf"chat_template={name}: the tokenizer of this model has no token"):
        apply_template_choice(letters, name)


@pytest.mark.parametrize("name", FITS_EVERY_TOKENIZER)
def test_the_others_need_an_end_of_text_only(name: str, make_tokenizer: Any) -> None:
    apply_template_choice(make_tokenizer(None, bos=None), name)
    with pytest.raises(ConfigError, match="one that ends a text"):
        apply_template_choice(make_tokenizer(None, eos=None), name)


def test_a_model_without_a_template_is_told_the_names(dataset: Any, make_tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match=r"has no chat template[\s\S]*alpaca, chatml, gemma, llama3, mistral, plain"):
        dataset([{"messages": talk("a", "b")}]).model_rows("train", make_tokenizer(None))


@pytest.mark.parametrize("choice", ["chatml", "file", None])
def test_the_chosen_template_is_saved_and_read_back_byte_for_byte(
    choice: str | None, dataset: Any, make_tokenizer: Any, tmp_path: Path
) -> None:
    content = CHATML.replace("{% for", "é\r\n{% for") + "\n\n"
    if choice == "file":
        (tmp_path / "own.jinja").write_bytes(content.encode())
        choice = str(tmp_path / "own.jinja")
    tokenizer = make_tokenizer(content if choice is None else None)
    data = dataset([{"messages": talk("a", "b")}], chat_template=choice)
    data.encode(data.load()["train"], tokenizer)
    again = reread(tokenizer, tmp_path / "model")
    assert (tmp_path / "model" / "chat_template.jinja").read_bytes() == tokenizer.chat_template.encode()
    assert again.chat_template == tokenizer.chat_template
    assert template_hash(again) == template_hash(tokenizer)
    assert render_prompt(talk("a"), again) == render_prompt(talk("a"), tokenizer)


def test_another_template_than_that_of_training_is_an_error(make_tokenizer: Any) -> None:
    trained = template_hash(make_tokenizer(CHATML))
    require_same_template(trained, make_tokenizer(CHATML))
    require_same_template(None, make_tokenizer(None))
    with pytest.raises(ConfigError, match=f"trained with the chat template {trained[:12]}"):
        require_same_template(trained, make_tokenizer(f"{CHATML} "))
    with pytest.raises(ConfigError, match="its tokenizer has none"):
        require_same_template(trained, make_tokenizer(None))


def test_a_template_of_its_own_for_tools_is_used_for_them(make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(None)
    tokenizer.chat_template = {"default": "plain", "tool_use": "tools"}
    assert render(talk("a"), tokenizer).text == "plain"
    assert render(talk("a"), tokenizer, tools=[{"name": "f"}]).text == "tools"
    before = template_hash(tokenizer)
    tokenizer.chat_template = {"default": "plain", "tool_use": "others"}
    assert template_hash(tokenizer) != before


@pytest.mark.parametrize("choice", ["chatm", "gone.jinja"])
def test_an_unknown_choice_is_an_error_of_the_config(choice: str) -> None:
    node = {"_target_": "supertrainer.data.llm.LlmDataset", "source": "a/b", "chat_template": choice}
    with pytest.raises(ValidationError, match=f"{choice}.* is (no template|not there)"):
        LlmDatasetConfig.model_validate_json(json.dumps(node))


def test_a_prompt_that_the_template_refuses_is_an_error(make_tokenizer: Any) -> None:
    with pytest.raises(DataError, match="refuses a prompt: no"):
        render_prompt(talk("a"), make_tokenizer("{{ raise_exception('no') }}"))
