"""The decoder that is pretrained: a Llama, with the multipliers of μP where they stand in its forward pass.

    B rows · T tokens · H hidden size · N heads · K key/value heads · D head size · V vocabulary

Positions restart at every document, and a document doesn't see another. Weights come from `models.pretrain`, what they
are multiplied with from `models.mup`. To shard it, shard each block and then the decoder itself: embedding, norm and
head are used by its own forward, tied or not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, TypeAlias, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from supertrainer.models.decoder_schema import DecoderShape
from supertrainer.models.mup import Multipliers, Role
from supertrainer.models.rotary import restarting_positions, rotary_table, rotate
from supertrainer.models.vocabulary_loss import LossSums, vocabulary_loss

Mask: TypeAlias = Tensor | BlockMask | None
"""Who sees whom: None where every token sees all before it in its row."""


class Decoder(nn.Module):
    """Tokens to logits, or to the sums of a loss.

    Args:
        shape: its sizes.
        multipliers: of its forward pass.
    """

    def __init__(self, shape: DecoderShape, *, multipliers: Multipliers) -> None:
        super().__init__()
        self.shape, self.multipliers = shape, multipliers
        self.embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.blocks = nn.ModuleList(Block(shape, multipliers) for _ in range(shape.num_layers))
        self.norm = Norm(shape.hidden_size, eps=shape.norm_eps)
        self.head = None if shape.tie_embeddings else _linear(shape.hidden_size, shape.vocab_size)
        self._rotary: dict[torch.device, Tensor] = {}  # no buffer: a model made on meta has none to fill

    @overload
    def forward(self, tokens: Tensor, *, documents: Tensor | None = None) -> Tensor: ...

    @overload
    def forward(
        self, tokens: Tensor, *, targets: Tensor, documents: Tensor | None = None, z_loss: float = 0.0
    ) -> LossSums: ...

    def forward(
        self,
        tokens: Tensor,
        *,
        targets: Tensor | None = None,
        documents: Tensor | None = None,
        z_loss: float = 0.0,
    ) -> Tensor | LossSums:
        """
        Args:
            tokens: (B, T), integers.
            targets: (B, T), the token that follows each; -100 is left out.
            documents: (B, T), a number that changes where another document begins; None: each row is one.
            z_loss: coefficient on the squared log-partition.

        Returns:
            Logits (B, T, V); with targets, the sums of the loss, which never have all logits in memory.
        """
        if documents is not None and tokens.is_cpu and bool((documents == documents[:, :1]).all()):
            documents = None  # the faster way for what is the same
        cos, sin = self._rotary_of(tokens, documents)
        mask = None if documents is None else document_mask(documents)
        x = self.embedding(tokens)
        if self.multipliers.embedding != 1.0:
            x = x * self.multipliers.embedding
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        x = self.norm(x)
        if self.multipliers.output != 1.0:
            x = x * self.multipliers.output  # as on the logits, which are wider
        weight = self.embedding.weight if self.head is None else self.head.weight
        if targets is None:
            return F.linear(x, weight)
        return vocabulary_loss(x.flatten(0, 1), weight, targets.flatten(), z_loss=z_loss)

    def roles(self) -> Iterator[tuple[nn.Module, Role]]:
        """Every module that has parameters of its own, with what they are for."""
        yield self.embedding, Role.EMBEDDING
        for block in self.blocks:
            yield from block.roles()
        yield self.norm, Role.FINAL_NORM
        if self.head is not None:
            yield self.head, Role.HEAD

    def _rotary_of(self, tokens: Tensor, documents: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cosines and sines that go over heads: (T, 1, D), or (B, T, 1, D) where documents restart."""
        table = self._rotary.get(tokens.device)
        if table is None or table.shape[1] < tokens.shape[1]:
            length = max(self.shape.max_length, tokens.shape[1])
            table = self._rotary[tokens.device] = rotary_table(self.shape, length).to(tokens.device)
        if documents is None:
            cos, sin = table[:, : tokens.shape[1]]
        else:
            cos, sin = table[:, restarting_positions(documents)]
        return cos.unsqueeze(-2), sin.unsqueeze(-2)


class Block(nn.Module):
    """Attention, then a gated feed-forward network, each on a normalized copy and added back."""

    def __init__(self, shape: DecoderShape, multipliers: Multipliers) -> None:
        super().__init__()
        self.attention_norm = Norm(shape.hidden_size, eps=shape.norm_eps)
        self.attention = Attention(shape, scale=multipliers.attention)
        self.ffn_norm = Norm(shape.hidden_size, eps=shape.norm_eps)
        self.ffn = FeedForward(shape)
        self.residual = multipliers.residual

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Mask) -> Tensor:  # (B, T, H)
        x = torch.add(x, self.attention(self.attention_norm(x), cos, sin, mask), alpha=self.residual)
        return torch.add(x, self.ffn(self.ffn_norm(x)), alpha=self.residual)

    def roles(self) -> Iterator[tuple[nn.Module, Role]]:
        attention, ffn = self.attention, self.ffn
        for norm in (self.attention_norm, self.ffn_norm, attention.query_norm, attention.key_norm):
            if norm is not None:
                yield norm, Role.HIDDEN_NORM
        for linear in (attention.query, attention.key, attention.value, ffn.gate, ffn.up):
            yield linear, Role.HIDDEN
        for linear in (attention.output, ffn.down):
            yield linear, Role.RESIDUAL


class Attention(nn.Module):
    """Causal attention; N/K query heads share a key/value head."""

    def __init__(self, shape: DecoderShape, *, scale: float) -> None:
        super().__init__()
        self.head_dim, self.scale = shape.head_dim, scale
        self.query = _linear(shape.hidden_size, shape.num_heads * shape.head_dim)
        self.key = _linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.value = _linear(shape.hidden_size, shape.num_kv_heads * shape.head_dim)
        self.output = _linear(shape.num_heads * shape.head_dim, shape.hidden_size)
        self.query_norm = Norm(shape.head_dim, eps=shape.norm_eps) if shape.qk_norm else None
        self.key_norm = Norm(shape.head_dim, eps=shape.norm_eps) if shape.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Mask) -> Tensor:  # (B, T, H)
        query, key, value = (
            projection(x).unflatten(-1, (-1, self.head_dim)) for projection in (self.query, self.key, self.value)
        )  # (B, T, N or K, D)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        cos, sin = cos.to(query.dtype), sin.to(query.dtype)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), mask=mask, scale=self.scale)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU. Source: Shazeer 2020, "GLU Variants Improve Transformer"."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.gate = _linear(shape.hidden_size, shape.ffn_size)
        self.up = _linear(shape.hidden_size, shape.ffn_size)
        self.down = _linear(shape.ffn_size, shape.hidden_size)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, H)
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Norm(nn.Module):
    """RMSNorm. Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization"."""

    def __init__(self, size: int, *, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:  # (…, size)
        if x.is_cpu and x.dtype == self.weight.dtype:
            return _RmsNormOnCpu.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class _RmsNormOnCpu(torch.autograd.Function):
    """torch has no kernel of it on a CPU: its parts walk over memory several times as often."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        inverse = x.pow(2).mean(-1, keepdim=True).add_(eps).rsqrt_()  # transformers' bits; a norm's are others
        normal = x * inverse
        ctx.save_for_backward(normal, inverse, weight)
        return normal * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, inverse, weight = ctx.saved_tensors
        product = gradient * normal
        along = torch.matmul(product, weight).div_(weight.numel()).unsqueeze(-1)
        of_x = (gradient * weight).addcmul_(normal, along, value=-1).mul_(inverse)
        return of_x, product.flatten(0, -2).sum(0), None


def document_mask(documents: Tensor) -> Tensor | BlockMask:
    """Who sees whom among (B, T) documents: for `attend`, and made once for all blocks.

    A mask to be added on a CPU, (B, 1, T, T), where flexible attention has no backward pass; blocks of it on a GPU,
    where whole blocks between documents are skipped.
    """
    if documents.is_cuda:
        return document_blocks(documents)
    index = torch.arange(documents.shape[1], device=documents.device)
    seen = (documents[:, :, None] == documents[:, None, :]) & (index[:, None] >= index)
    blocked = torch.zeros(seen.shape, device=documents.device).masked_fill_(~seen, float("-inf"))
    return blocked.unsqueeze(1)


def document_blocks(documents: Tensor) -> BlockMask:
    """The same for flexible attention."""
    rows, length = documents.shape

    def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (documents[row, query] == documents[row, key])

    return create_block_mask(sees, rows, None, length, length, device=documents.device)


def attend(query: Tensor, key: Tensor, value: Tensor, *, mask: Mask, scale: float) -> Tensor:
    """Attention of (B, N, T, D) queries over (B, K, T, D) keys and values: (B, N, T, D).

    The one place that knows how it is computed.
    """
    grouped = query.shape[1] != key.shape[1]
    if isinstance(mask, BlockMask):
        return _compiled_flex_attention()(query, key, value, block_mask=mask, scale=scale, enable_gqa=grouped)
    added = None if mask is None else mask.to(query.dtype)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=added, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )


@functools.cache
def _compiled_flex_attention() -> Any:
    return torch.compile(flex_attention, dynamic=False)  # without it all scores would be in memory


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)
