"""Pretraining as an expert writes it for one model and one machine: a small decoder and a loop, PyTorch alone.

Nothing is checked, saved, resumed or logged beyond the loss. What is known to be fast is used: one product for queries,
keys and values and one for gate and up, grouped-query attention inside scaled_dot_product_attention, RMSNorm as one
operation, an embedding that gives the head no copy, the fused optimizer, the fused clipping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class PlainShape:
    """A Llama's sizes."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    ffn_size: int
    rope_theta: float
    norm_eps: float

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> PlainShape:
        """The sizes in a Llama's config.json."""
        return cls(
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            num_layers=config["num_hidden_layers"],
            num_heads=config["num_attention_heads"],
            num_kv_heads=config["num_key_value_heads"],
            ffn_size=config["intermediate_size"],
            rope_theta=config.get("rope_theta") or config["rope_parameters"]["rope_theta"],
            norm_eps=config["rms_norm_eps"],
        )


class PlainBlock(nn.Module):
    """Attention and SwiGLU, each behind a norm."""

    def __init__(self, shape: PlainShape) -> None:
        super().__init__()
        self.shape, size = shape, shape.hidden_size
        self.head_dim = size // shape.num_heads
        self.norm1 = nn.RMSNorm(size, eps=shape.norm_eps)
        self.qkv = nn.Linear(size, (shape.num_heads + 2 * shape.num_kv_heads) * self.head_dim, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.norm2 = nn.RMSNorm(size, eps=shape.norm_eps)
        self.gate_up = nn.Linear(size, 2 * shape.ffn_size, bias=False)
        self.down = nn.Linear(shape.ffn_size, size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        heads, kv_heads = self.shape.num_heads, self.shape.num_kv_heads
        qkv = self.qkv(self.norm1(x)).view(batch, length, heads + 2 * kv_heads, self.head_dim).transpose(1, 2)
        turned = rotate(qkv[:, : heads + kv_heads], cos, sin)  # queries and keys at once
        attended = F.scaled_dot_product_attention(
            turned[:, :heads], turned[:, heads:], qkv[:, heads + kv_heads :], is_causal=True, enable_gqa=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, -1))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class PlainDecoder(nn.Module):
    """Tokens to the mean loss of the next ones."""

    def __init__(self, shape: PlainShape, *, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.blocks = nn.ModuleList(PlainBlock(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        self.head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        half = shape.hidden_size // shape.num_heads // 2
        angles = torch.outer(torch.arange(length), shape.rope_theta ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Takes the weights of a Llama of the same sizes."""
        own = {"embedding.weight": state["model.embed_tokens.weight"], "norm.weight": state["model.norm.weight"]}
        own["head.weight"] = state["lm_head.weight"]
        for number in range(len(self.blocks)):
            layer = {
                name.removeprefix(f"model.layers.{number}."): tensor
                for name, tensor in state.items()
                if name.startswith(f"model.layers.{number}.")
            }
            own |= {
                f"blocks.{number}.norm1.weight": layer["input_layernorm.weight"],
                f"blocks.{number}.norm2.weight": layer["post_attention_layernorm.weight"],
                f"blocks.{number}.qkv.weight": torch.cat([layer[f"self_attn.{name}_proj.weight"] for name in "qkv"]),
                f"blocks.{number}.out.weight": layer["self_attn.o_proj.weight"],
                f"blocks.{number}.gate_up.weight": torch.cat(
                    [layer["mlp.gate_proj.weight"], layer["mlp.up_proj.weight"]]
                ),
                f"blocks.{number}.down.weight": layer["mlp.down_proj.weight"],
            }
        self.load_state_dict({**own, "cos": self.cos, "sin": self.sin})


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the halves of every head by their position."""  # (B, H, T, D), (T, D / 2)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def train(
    decoder: PlainDecoder,
    batches: Iterator[Tensor],
    *,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float],
    eps: float,
    max_grad_norm: float,
    is_logged: Callable[[int], bool],
    compiled: bool,
    after_step: Callable[[float | None], None],
) -> None:
    """Trains until the batches end.

    Args:
        batches: int64 token ids of a step, (B, T + 1).
        is_logged: whether the loss of a step is looked at.
        after_step: called with the loss of a step that is looked at, else with None.
    """
    matrices = [parameter for parameter in decoder.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in decoder.parameters() if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=betas, eps=eps, fused=True)
    parameters = [*matrices, *vectors]
    model = torch.compile(decoder) if compiled else decoder
    for step, rows in enumerate(batches, start=1):
        loss = model(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        after_step(loss.item() if is_logged(step) else None)
