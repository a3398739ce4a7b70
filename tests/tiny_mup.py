"""Decoders for pretraining, small enough to build in every test: two layers of width 32, four heads that share two."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from supertrainer.models.decoder import Decoder
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.schema import DecoderModelConfig

VOCAB = 101
SIZES: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_heads": 4,
    "num_kv_heads": 2,
    "max_length": 64,
    "ffn_multiple": 8,
    "vocab_multiple": 1,
    "init_std": 0.2,
}


def decoder_config(**keys: Any) -> DecoderModelConfig:
    """The config of a tiny decoder."""
    return DecoderModelConfig(_target_="supertrainer.models.pretrain.DecoderModel", **{**SIZES, **keys})


def decoder_model(**keys: Any) -> DecoderModel:
    """The model of `decoder_config`."""
    return DecoderModel(decoder_config(**keys))


def mup(hidden_size: int, **keys: Any) -> dict[str, Any]:
    """μP against a base of a width."""
    base = {"hidden_size": hidden_size, **keys.pop("base", {})}
    return {"name": "mup", "base": base, **keys}


def started(model: DecoderModel, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Decoder:
    """Its decoder, with weights."""
    decoder = model.build(VOCAB).to(dtype)
    model.initialize(decoder, seed=seed, vocab_size=VOCAB)
    return decoder


def some_tokens(rows: int = 2, length: int = 40, *, seed: int = 0) -> Tensor:
    """Random tokens: (rows, length)."""
    return torch.randint(0, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))
