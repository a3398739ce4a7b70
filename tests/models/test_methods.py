"""Every adapter method over full-width and quantized weights: what is read back is what was trained."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from supertrainer.core.errors import ConfigError
from supertrainer.models.initial import START_FILE, restore_start, start_of
from supertrainer.models.saving import load_trained, save_trained, write_model
from supertrainer.models.schema import ModelKwargs
from tiny_decoders import IDS, llm, logits, save_decoder, shaken

METHODS: dict[str, dict[str, Any]] = {
    "lora": {},
    "dora": {"use_dora": True},
    "rslora": {"use_rslora": True},
    "pissa": {"init_lora_weights": "pissa"},
    "pissa_niter": {"init_lora_weights": "pissa_niter_4"},
    "olora": {"init_lora_weights": "olora"},
    "pissa+rslora": {"init_lora_weights": "pissa", "use_rslora": True, "rank_pattern": {"q_proj": 2}},
    "pissa+dora": {"init_lora_weights": "pissa", "use_dora": True},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "gaussian": {"init_lora_weights": "gaussian"},
}
WEIGHTS: dict[str, dict[str, Any] | None] = {
    "full": None,
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "int8": {"load_in_8bit": True},
}
# bitsandbytes says of every call in 8 bits that inputs are cast to float16; PEFT, that merging int8 rounds
# PEFT 0.21 reads a name that transformers 5.24 has renamed
pytestmark = [
    pytest.mark.filterwarnings("ignore:MatMul8bitLt. inputs will be cast:UserWarning"),
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing.* is deprecated:FutureWarning"),
]


def adapted(model: Any, method: str, weights: str = "full", **keys: Any) -> Any:
    options = {"r": 4, "lora_alpha": 8, "target_modules": "auto", **METHODS[method], **keys}
    return model.build(seed=1, peft_kwargs=options, bitsandbytes_kwargs=WEIGHTS[weights])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_decoder(tmp_path_factory.mktemp("source"))


REFUSED = {
    ("orthogonal", "nf4"),
    ("orthogonal", "fp4"),
    ("orthogonal", "int8"),
    ("dora", "int8"),
    ("pissa+dora", "int8"),
}


@pytest.mark.parametrize(("method", "weights"), [both for both in product(METHODS, WEIGHTS) if both not in REFUSED])
def test_reloaded_equals_trained(source: Path, tmp_path: Path, method: str, weights: str) -> None:
    model = llm(source)
    trained = shaken(adapted(model, method, weights))
    save_trained(
        trained, model.tokenizer(), tmp_path / "model", base=model.base_reference(), unquantized=model.unquantized
    )
    again = logits(load_trained(tmp_path / "model").model)
    # What begins inside full-width weights is saved as a plain LoRA on them: the same sum in another order.
    bound = 1e-5 if start_of(trained) is not None and weights == "full" else 0.0
    torch.testing.assert_close(again, logits(trained), rtol=0, atol=bound)
    assert not (tmp_path / "model" / START_FILE).exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_fresh_adapter_changes_nothing(source: Path, method: str) -> None:
    full = logits(llm(source).build(seed=1).eval())
    # A part of the weights, or a start beside them, is taken out and added again: rounded twice.
    torch.testing.assert_close(logits(adapted(llm(source), method).eval()), full, rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["pissa", "olora", "pissa+rslora"])
def test_plain_peft_reads_what_began_inside_the_weights_on_the_original_base(
    source: Path, tmp_path: Path, method: str
) -> None:
    model = llm(source)
    trained = shaken(adapted(model, method))
    save_trained(trained, model.tokenizer(), tmp_path / "model", base=model.base_reference())
    base = AutoModelForCausalLM.from_pretrained(source)
    read = PeftModel.from_pretrained(base, tmp_path / "model").eval()
    torch.testing.assert_close(logits(read), logits(trained), rtol=0, atol=1e-5)
    config = json.loads((tmp_path / "model" / "adapter_config.json").read_text())
    assert (config["r"], config["init_lora_weights"]) == (8, True)


@pytest.mark.parametrize("weights", ["full", "nf4"])
def test_a_resumed_adapter_begins_as_the_first_did(source: Path, tmp_path: Path, weights: str) -> None:
    """What a second start builds and reads from a checkpoint gives the first one's logits to the bit."""
    from supertrainer.trainers.checkpointing import load_weights

    model = llm(source)
    first = adapted(model, "pissa", weights)
    shaken(first)
    write_model(first, model.tokenizer(), tmp_path, base=model.base_reference())
    again = adapted(llm(source), "pissa", weights)
    restore_start(again, tmp_path)
    load_weights(again, tmp_path)
    assert torch.equal(logits(again.eval()), logits(first))


def test_an_adapter_that_began_otherwise_elsewhere_goes_on_as_it_began(source: Path, tmp_path: Path) -> None:
    from supertrainer.trainers.checkpointing import load_weights

    model = llm(source)
    elsewhere = adapted(model, "olora")  # stands for another machine's decomposition
    shaken(elsewhere)
    write_model(elsewhere, model.tokenizer(), tmp_path, base=model.base_reference())
    here = adapted(llm(source), "pissa")
    restore_start(here, tmp_path)
    load_weights(here, tmp_path)
    torch.testing.assert_close(logits(here.eval()), logits(elsewhere), rtol=0, atol=1e-5)


def test_every_part_of_an_adapter_moves_in_a_step(source: Path) -> None:
    """DoRA's magnitude, and B of the lowest layer under activation checkpointing."""
    for checkpointing in (False, True):
        model = adapted(llm(source), "dora")
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.train()
        before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        step = torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5)
        model(input_ids=IDS, labels=IDS).loss.backward()
        step.step()
        after = dict(model.named_parameters())
        still = [name for name, old in before.items() if torch.equal(old, after[name]) and "lora_A" not in name]
        assert not still  # A moves from the second step on: B is zero in the first
        assert any("lora_magnitude_vector" in name for name in before)


def test_a_magnitude_over_bfloat16_moves_by_a_small_step(source: Path) -> None:
    """In bfloat16 it would stay: its numbers near 1 are 0.8 % apart."""
    options = {"r": 4, "target_modules": "auto", "use_dora": True}
    model = llm(source).build(seed=1, peft_kwargs=options, model_kwargs=ModelKwargs(dtype="bfloat16"))
    magnitudes = {name: p for name, p in model.named_parameters() if "lora_magnitude_vector" in name}
    before = {name: p.detach().clone() for name, p in magnitudes.items()}
    step = torch.optim.AdamW(magnitudes.values(), lr=1e-4)
    model(input_ids=IDS, labels=IDS).loss.backward()
    step.step()
    assert magnitudes
    assert not [name for name, p in magnitudes.items() if torch.equal(p, before[name])]


@pytest.mark.parametrize(
    ("options", "weights", "words"),
    [
        ({"init_lora_weights": "eva"}, "full", r"init_lora_weights=eva: isn't trained here(?s:.*)training data"),
        ({"init_lora_weights": "loftq"}, "nf4", r"init_lora_weights=loftq: isn't trained here(?s:.*)saves no memory"),
        ({"init_lora_weights": "pisa"}, "full", r"init_lora_weights=pisa: is no way(?s:.*)did you mean pissa\?"),
        ({"init_lora_weights": "orthogonal"}, "nf4", "whole numbers only"),
        ({"use_dora": True}, "int8", "use_dora=true with trainer.bitsandbytes_kwargs.load_in_8bit=true"),
        ({"target_modules": ["q_proj", "k_prjo"]}, "full", r"'k_prjo' matches nothing(?s:.*)did you mean k_proj\?"),
        ({"exclude_modules": ["downproj"]}, "full", r"exclude_modules: 'downproj'(?s:.*)did you mean down_proj\?"),
    ],
)
def test_what_is_not_trained_here_is_refused_with_the_reason(
    source: Path, options: dict[str, Any], weights: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        adapted(llm(source), "lora", weights, **options)


def test_an_adapter_on_a_tied_output_is_refused(tmp_path: Path) -> None:
    source = save_decoder(tmp_path, tied=True)
    with pytest.raises(ConfigError, match=r"(?s)'lm_head' matches lm_head\..*can't be merged.*auto does"):
        adapted(llm(source), "lora", target_modules=["q_proj", "lm_head"])
