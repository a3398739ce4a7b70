"""Decoders small enough to build in every test: two layers of width 32, a vocabulary of a hundred words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from supertrainer.models.llm import LlmModel
from supertrainer.models.schema import LlmModelConfig

WORDS = 94
SPECIAL = ("<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>")
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|> {{ message.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}\n"
)
IDS = torch.tensor([[1, 9, 30, 7, 55, 2, 12, 90], [1, 8, 80, 41, 6, 33, 21, 2]])


def decoder_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """`w0` … `w93` are one token each; no padding token, as base models have none; a chat template."""
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *(f"w{n}" for n in range(WORDS))))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    built = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{**names, "model_max_length": 64, **options})
    built.chat_template = TEMPLATE
    return built


def save_decoder(
    directory: Path,
    model_type: str = "llama",
    *,
    tied: bool = False,
    seed: int = 0,
    dtype: str = "float32",
    **keys: Any,
) -> Path:
    """Writes a decoder with its tokenizer; returns the directory."""
    sizes = {
        "vocab_size": WORDS + len(SPECIAL), "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "tie_word_embeddings": tied,
    }  # fmt: skip
    config = AutoConfig.for_model(model_type, **{**sizes, **keys})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    with torch.no_grad():
        for parameter in model.parameters():  # larger than they start: a tiny model's logits would hardly differ
            if parameter.ndim > 1:
                parameter.mul_(5)
    model.generation_config.eos_token_id = [2, 5]
    model.save_pretrained(directory)
    decoder_tokenizer().save_pretrained(directory)
    return directory


def llm(source: Path | str | None, **keys: Any) -> LlmModel:
    """The model of a directory."""
    place = {} if source is None else {"source": str(source)}
    return LlmModel(LlmModelConfig(_target_="supertrainer.models.llm.LlmModel", **place, **keys))


def shaken(model: nn.Module, *, by: float = 0.1) -> nn.Module:
    """Moves every trained weight, as training would: a fresh adapter adds nothing."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += by * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits(model: nn.Module, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=ids).logits
