"""Rotary positions: the angles of a shape, and the turn of a vector by them.

Source: Su et al. 2021, "RoFormer"; scaled angles by transformers' own rules, so that every engine has the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from supertrainer.models.decoder_schema import DecoderShape


def rotary_table(shape: DecoderShape, length: int) -> Tensor:
    """Cosines and signed sines of `length` positions, on the CPU in float32: (2, length, head_dim)."""
    with torch.device("cpu"):
        frequencies, factor = _frequencies(shape)
        angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
        cos, sin = angles.cos() * factor, angles.sin() * factor
        return torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)))


def rotate(vectors: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns (…, D) vectors: dimension i together with i + D/2, as Llama's checkpoints have them."""
    # Without a fused product and sum: transformers' has other bits than one.
    return (vectors.roll(vectors.shape[-1] // 2, -1) * sin).add_(vectors * cos)


def restarting_positions(documents: Tensor) -> Tensor:
    """Each token's position in its document: (B, T), of (B, T) numbers that change where a document begins."""
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    starts = torch.where(begins, index, 0).cummax(dim=1).values
    return index - starts


def _frequencies(shape: DecoderShape) -> tuple[Tensor, float]:
    if not shape.rope_scaling:
        steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        return 1.0 / (shape.rope_theta**steps), 1.0
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=shape.num_heads * shape.head_dim,
        num_attention_heads=shape.num_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_length,
        rope_parameters={**shape.rope_scaling, "rope_theta": shape.rope_theta},
    )
    frequencies, factor = ROPE_INIT_FUNCTIONS[shape.rope_scaling["rope_type"]](config, torch.device("cpu"))
    return frequencies, float(factor)
