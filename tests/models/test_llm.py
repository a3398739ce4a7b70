"""Causal language models: tokenizers, added tokens, and the way through a directory and back."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from supertrainer.core.errors import ConfigError
from supertrainer.models.adapters import adapter_table
from supertrainer.models.base import count_parameters
from supertrainer.models.saving import load_trained, save_trained
from supertrainer.models.schema import LlmModelConfig
from tiny_decoders import IDS, TEMPLATE, decoder_tokenizer, llm, logits, save_decoder, shaken

LORA = {"r": 4, "target_modules": "auto"}
CALLS = ("<call>", "</call>")
WITH_CALLS = torch.cat([IDS, torch.tensor([[100, 101], [101, 100]])], dim=1)


def reloaded(model: Any, trained: Any, directory: Path) -> Any:
    save_trained(trained, model.tokenizer(), directory, base=model.base_reference())
    return load_trained(directory)


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma2"])
def test_reloaded_equals_trained_and_transformers_reads_it(tmp_path: Path, model_type: str) -> None:
    model = llm(save_decoder(tmp_path / "source", model_type))
    trained = shaken(model.build(seed=1))
    again = reloaded(model, trained, tmp_path / "model")
    assert torch.equal(logits(again.model), logits(trained))
    assert (again.task, again.label_names) == ("causal_lm", ())
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    assert torch.equal(logits(plain), logits(trained))
    assert plain.generation_config.eos_token_id == [2, 5]
    assert plain.config.use_cache


def test_a_tokenizer_without_padding_borrows_the_end_of_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        tokenizer = llm(save_decoder(tmp_path)).tokenizer()
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id, len(tokenizer)) == (2, 2, 100)
    assert "no padding token: </s> stands for it too" in caplog.text
    assert tokenizer(["w1", "w1 w2"], padding=True)["attention_mask"] == [[1, 0], [1, 1]]


def test_padding_is_before_the_text_where_a_model_is_read_to_generate(tmp_path: Path) -> None:
    model = llm(save_decoder(tmp_path / "source"))
    again = reloaded(model, model.build(seed=1), tmp_path / "model")
    assert again.tokenizer(["w1", "w1 w2"], padding=True)["attention_mask"] == [[0, 1], [1, 1]]


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
def test_a_chat_template_comes_back_byte_for_byte(tmp_path: Path, peft_kwargs: Any) -> None:
    model = llm(save_decoder(tmp_path / "source"))
    again = reloaded(model, model.build(seed=1, peft_kwargs=peft_kwargs), tmp_path / "model")
    assert again.tokenizer.chat_template == TEMPLATE
    chat = [{"role": "user", "content": "w1"}]
    before = decoder_tokenizer().apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert again.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == before


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
@pytest.mark.parametrize("tied", [True, False])
def test_added_tokens_are_trained_and_come_back(tmp_path: Path, tied: bool, peft_kwargs: Any) -> None:
    source = save_decoder(tmp_path / "source", tied=tied)
    model = llm(source, added_tokens=CALLS)
    fresh = model.build(seed=1, peft_kwargs=peft_kwargs)
    rows = fresh.get_input_embeddings().weight
    old = AutoModelForCausalLM.from_pretrained(source).get_input_embeddings().weight
    assert rows.shape == (102, 32)
    assert torch.equal(rows[100], old.mean(dim=0))
    start = logits(fresh, WITH_CALLS)
    trained = shaken(fresh)
    again = reloaded(model, trained, tmp_path / "model")
    assert torch.equal(logits(again.model, WITH_CALLS), logits(trained, WITH_CALLS))
    assert not torch.equal(logits(trained, WITH_CALLS), start)
    assert again.tokenizer.convert_tokens_to_ids("</call>") == 101
    assert again.model.config.vocab_size == 102


@pytest.mark.parametrize(("tied", "places"), [(True, 1), (False, 2)])
def test_beside_an_adapter_only_the_new_rows_are_trained(tmp_path: Path, tied: bool, places: int) -> None:
    model = llm(save_decoder(tmp_path, tied=tied), added_tokens=CALLS)
    with_rows = count_parameters(model.build(seed=1, peft_kwargs=LORA)).trainable
    without = count_parameters(llm(tmp_path).build(seed=1, peft_kwargs=LORA)).trainable
    assert with_rows - without == places * 2 * 32


def test_a_known_token_among_the_added_ones_keeps_its_row_and_is_trained(tmp_path: Path) -> None:
    source = save_decoder(tmp_path)
    built = llm(source, added_tokens=("<|user|>",)).build(seed=1, peft_kwargs=LORA)
    old = AutoModelForCausalLM.from_pretrained(source).get_input_embeddings().weight
    assert torch.equal(built.get_input_embeddings().weight, old)
    counts = {row.name: row.parameters for row in adapter_table(built)}
    assert (counts["embed_tokens (new rows)"], counts["lm_head (new rows)"]) == (32, 32)


def test_spare_rows_of_an_embedding_are_used_and_begin_as_the_mean(tmp_path: Path) -> None:
    source = save_decoder(tmp_path, vocab_size=128)
    built = llm(source, added_tokens=CALLS).build(seed=1)
    assert built.get_input_embeddings().weight.shape == (128, 32)
    assert torch.equal(built.lm_head.weight[101], built.lm_head.weight[:100].mean(dim=0))


@pytest.mark.parametrize("tied", [True, False])
def test_an_adapter_on_an_untrained_model_brings_it_along(tmp_path: Path, tied: bool) -> None:
    decoder_tokenizer().save_pretrained(tmp_path / "tokenizer")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
    config = {"model_type": "llama", "tie_word_embeddings": tied, **sizes}
    model = llm(None, config=config, tokenizer=str(tmp_path / "tokenizer"), added_tokens=CALLS)
    trained = shaken(model.build(seed=1, peft_kwargs=LORA))
    again = reloaded(model, trained, tmp_path / "model")
    assert torch.equal(logits(again.model, WITH_CALLS), logits(trained, WITH_CALLS))


def test_on_the_meta_device_everything_is_counted(tmp_path: Path) -> None:
    model = llm(save_decoder(tmp_path), added_tokens=CALLS)
    meta = model.build(seed=1, peft_kwargs={**LORA, "init_lora_weights": "pissa"}, device="meta")
    assert count_parameters(meta) == count_parameters(model.build(seed=1, peft_kwargs=LORA))


def test_a_source_that_is_quantized_for_good_is_refused(tmp_path: Path) -> None:
    source = save_decoder(tmp_path)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"(?s)quantized already.*trainer\.bitsandbytes_kwargs"):
        llm(source).build(seed=1)


def test_sampling_options_of_a_source_do_not_stop_a_model_from_being_saved(tmp_path: Path) -> None:
    source = save_decoder(tmp_path / "source")
    noted = json.loads((source / "generation_config.json").read_text())
    (source / "generation_config.json").write_text(json.dumps({**noted, "temperature": 0.6, "top_p": 0.9}))
    model = llm(source)
    again = reloaded(model, model.build(seed=1, peft_kwargs=LORA), tmp_path / "model")
    assert (again.model.generation_config.temperature, again.model.generation_config.do_sample) == (0.6, True)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"source": "a/b", "added_tokens": ("<x>", "<x>")}, "names '<x>' twice"),
        ({"source": "a/b", "added_tokens": (" ",)}, "holds an empty token"),
        ({"source": "a/b", "gguf_file": "model.bin"}, "doesn't end in .gguf"),
        ({"config": {"model_type": "llama"}, "tokenizer": "a/b", "gguf_file": "x.gguf"}, "belongs to a source"),
    ],
)
def test_what_contradicts_itself_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LlmModelConfig(_target_="x", **keys)


def test_plain_transformers_reads_the_tokenizer_of_a_run(tmp_path: Path) -> None:
    model = llm(save_decoder(tmp_path / "source"), added_tokens=CALLS)
    reloaded(model, model.build(seed=1, peft_kwargs=LORA), tmp_path / "model")
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) == 102


# PEFT says of a module that is trained whole beside tied embeddings what is settled in config.json here
@pytest.mark.filterwarnings("ignore:.*(tie_word_embeddings|ensure_weight_tying).*:UserWarning")
@pytest.mark.parametrize(("options", "added"), [({}, ()), ({}, CALLS), ({"modules_to_save": ["embed_tokens"]}, ())])
def test_training_goes_on_from_an_adapter_of_tied_embeddings(tmp_path: Path, options: Any, added: Any) -> None:
    model = llm(save_decoder(tmp_path / "source", tied=True), added_tokens=added)
    trained = shaken(model.build(seed=1, peft_kwargs={**LORA, **options}))
    reloaded(model, trained, tmp_path / "runs" / "first" / "model")
    again = llm(tmp_path / "runs" / "first").build(seed=2).eval()
    ids = WITH_CALLS if added else IDS
    torch.testing.assert_close(logits(again, ids), logits(trained, ids), rtol=0, atol=1e-5)
