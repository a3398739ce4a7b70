"""Causal language models small enough to build in every test, with a tokenizer and a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

WORDS = 90
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>")
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|> {{ m['content'] }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
POSITIONS = 96

# What each architecture needs beside the common sizes.
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {**_SIZES, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS},
    "qwen2": {**_SIZES, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS},
    "gemma2": {
        **_SIZES,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "sliding_window": 8,
        "max_position_embeddings": POSITIONS,
    },
    "gpt2": {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": POSITIONS,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
}


def tiny_chat_tokenizer(**options: Any) -> PreTrainedTokenizerFast:
    """A word-level tokenizer: `w0` … `w89` are one token each; a text begins with <s>, a turn ends with <|end|>."""
    vocabulary = {word: index for index, word in enumerate((*SPECIAL, *(f"w{n}" for n in range(WORDS))))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    settings = {"model_max_length": POSITIONS, "extra_special_tokens": list(SPECIAL[4:]), "chat_template": TEMPLATE}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **{**names, **settings, **options})


def tiny_chat_model(model_type: str = "llama", *, seed: int = 0, **overrides: Any) -> PreTrainedModel:
    """A two-layer model whose greedy answers vary, in eval mode."""
    settings = {"vocab_size": WORDS + len(SPECIAL), "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    settings |= {"initializer_range": 0.4, "tie_word_embeddings": False}
    config = AutoConfig.for_model(model_type, **{**settings, **ARCHITECTURES[model_type], **overrides})
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return model.eval()


def save_tiny_chat(directory: Path, model_type: str = "llama", *, seed: int = 0, **overrides: Any) -> Path:
    """Writes a model with its tokenizer; returns the directory."""
    tiny_chat_model(model_type, seed=seed, **overrides).save_pretrained(directory)
    tiny_chat_tokenizer().save_pretrained(directory)
    return directory


def tiny_prompts(count: int, *, seed: int = 0, shortest: int = 3, longest: int = 20) -> list[list[int]]:
    """Token ids of random words, of mixed length, each with <s> before them."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(shortest, longest, (count,), generator=generator).tolist()
    first = len(SPECIAL)
    return [[2, *torch.randint(first, first + WORDS, (n,), generator=generator).tolist()] for n in lengths]
