"""The config of a decoder that is pretrained, and the sizes that follow from it. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, model_validator

from supertrainer.config.strict import ExistingSource, StrictModel, TargetModel


class RopeScaling(StrictModel):
    """Rotary positions stretched beyond what a model saw, as transformers' `rope_parameters` name it."""

    rope_type: Literal["linear", "llama3", "yarn"] = Field(description="The rule, by transformers' name of it.")
    factor: float = Field(ge=1, description="How many times longer.")
    original_max_position_embeddings: int | None = Field(default=None, ge=1, description="llama3, yarn: before it.")
    low_freq_factor: float | None = Field(default=None, gt=0, description="llama3: below it all is stretched.")
    high_freq_factor: float | None = Field(default=None, gt=0, description="llama3: above it nothing is.")
    beta_fast: float | None = Field(default=None, gt=0, description="yarn: turns above which nothing is stretched.")
    beta_slow: float | None = Field(default=None, gt=0, description="yarn: turns below which all is.")
    attention_factor: float | None = Field(default=None, gt=0, description="yarn: on the rotated vectors.")

    @model_validator(mode="after")
    def _keys_of_its_type(self) -> RopeScaling:
        needed = {
            "linear": (),
            "llama3": ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
            "yarn": ("original_max_position_embeddings",),
        }[self.rope_type]
        optional = ("beta_fast", "beta_slow", "attention_factor") if self.rope_type == "yarn" else ()
        given = {key for key in type(self).model_fields if vars(self)[key] is not None} - {"rope_type", "factor"}
        missing = [key for key in needed if key not in given]
        strange = sorted(given - {*needed, *optional})
        if missing:
            raise ValueError(f"rope_type={self.rope_type} has no {missing[0]}. Fix: {missing[0]}=….")
        if strange:
            raise ValueError(f"{strange[0]} says nothing for rope_type={self.rope_type}. Fix: {strange[0]}=null.")
        if self.low_freq_factor and self.high_freq_factor and self.low_freq_factor >= self.high_freq_factor:
            raise ValueError("low_freq_factor isn't below high_freq_factor. Fix: 1.0 and 4.0, as Llama 3.1 has them.")
        return self


class BaseShape(StrictModel):
    """The sizes at which hyperparameters were found. null: as the model's own, widths in proportion."""

    hidden_size: int = Field(ge=1, description="Its width.")
    num_layers: int | None = Field(default=None, ge=1, description="null: the model's own.")
    num_heads: int | None = Field(default=None, ge=1, description="null: the model's head_dim is kept.")
    num_kv_heads: int | None = Field(default=None, ge=1, description="null: the model's heads per key/value head.")
    head_dim: int | None = Field(default=None, ge=2, description="null: the model's, or hidden_size / num_heads.")
    ffn_size: int | None = Field(default=None, ge=1, description="null: by the model's own rule.")


class Parametrization(StrictModel):
    """How initialisation, learning rate, weight decay and forward multipliers depend on width and depth."""

    name: Literal["mup", "sp"] = Field(default="sp", description="mup: by ratios to `base`. sp: the same everywhere.")
    base: BaseShape | None = Field(default=None, description="mup: where the learning rate and the rest were found.")
    weight_decay: Literal["independent", "coupled", "sqrt"] = Field(
        default="independent",
        description="What stays constant over width: lr × weight_decay, weight_decay alone, or the middle of both.",
    )
    scale_eps: bool = Field(default=True, description="Adam's eps falls with width, as gradients do.")
    depth_alpha: float | None = Field(
        default=None, ge=0.5, le=1, description="Residual branches × (layers / base layers)^-alpha. 1: CompleteP."
    )
    embedding_multiplier: float = Field(default=1.0, gt=0, description="On the embeddings.")
    output_multiplier: float = Field(default=1.0, gt=0, description="On the logits, at base width.")
    zero_head: bool = Field(default=False, description="An untied head starts at zero: the first loss is log(V).")

    @model_validator(mode="after")
    def _base_of_mup(self) -> Parametrization:
        if self.name == "mup" and self.base is None:
            raise ValueError("name=mup has no base. Fix: base={hidden_size: 256}, or name=sp.")
        if self.name == "sp" and self.base is not None:
            raise ValueError("base belongs to name=mup, and name is sp. Fix: name=mup, or base=null.")
        if self.depth_alpha is not None and (self.base is None or self.base.num_layers is None):
            raise ValueError("depth_alpha compares with base.num_layers, which isn't there. Fix: base.num_layers=….")
        return self


@dataclass(frozen=True)
class DecoderShape:
    """The sizes of a decoder, with nothing left open.

    Attributes:
        vocab_size: rows of the embedding: the tokenizer's, rounded up.
        rope_scaling: transformers' keys but `rope_theta`; empty for plain rotary positions.
    """

    vocab_size: int
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    max_length: int
    rope_theta: float
    rope_scaling: Mapping[str, Any]
    qk_norm: bool
    tie_embeddings: bool
    norm_eps: float

    def block_parameters(self) -> int:
        """Parameters of one block."""
        attention = 2 * self.hidden_size * self.head_dim * (self.num_heads + self.num_kv_heads)
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        return attention + 3 * self.hidden_size * self.ffn_size + norms

    def parameters(self, *, embeddings: bool = True) -> int:
        """Parameters in all, or without embedding and head."""
        tables = self.vocab_size * self.hidden_size * (1 if self.tie_embeddings else 2) if embeddings else 0
        return self.num_layers * self.block_parameters() + self.hidden_size + tables

    def flops_per_token(self, sequence_length: int) -> int:
        """Floating point operations of forward and backward pass for a token, causal attention counted by half.

        Source: Chowdhery et al. 2022, "PaLM", appendix B, with the head and without the embedding's look-up.
        """
        matrices = self.parameters(embeddings=False) + self.vocab_size * self.hidden_size
        return 6 * matrices + 6 * self.num_layers * self.num_heads * self.head_dim * sequence_length


class DecoderModelConfig(TargetModel):
    """A Llama-style decoder that is trained from the start, or on from a checkpoint of that family."""

    task: Literal["pretraining"] = Field(default="pretraining", description="The next token of running text.")
    num_layers: int = Field(ge=1, description="Blocks.")
    hidden_size: int = Field(ge=2, description="Width.")
    num_heads: int = Field(ge=1, description="Query heads.")
    num_kv_heads: int = Field(ge=1, description="Key/value heads: num_heads or a divisor of it.")
    head_dim: int | None = Field(default=None, ge=2, description="null: hidden_size / num_heads.")
    ffn_size: int | None = Field(default=None, ge=1, description="null: 8/3 hidden_size, rounded up to ffn_multiple.")
    ffn_multiple: int = Field(default=64, ge=1, description="Of a ffn_size that isn't given.")
    max_length: int = Field(ge=2, description="Positions: the longest sequence that it is meant for, in tokens.")
    rope_theta: float = Field(default=10000.0, gt=1, description="The base of rotary positions.")
    rope_scaling: RopeScaling | None = Field(default=None, description="Rotary positions, stretched.")
    qk_norm: bool = Field(default=False, description="RMSNorm on queries and keys, as Qwen3 has it.")
    tie_embeddings: bool = Field(default=False, description="The head is the embedding.")
    norm_eps: float = Field(default=1e-5, gt=0, description="Of every RMSNorm.")
    init_std: float = Field(default=0.02, gt=0, description="Of the embedding, and of matrices at base width.")
    vocab_multiple: int = Field(default=64, ge=1, description="The vocabulary is rounded up to a multiple of it.")
    source: ExistingSource | None = Field(
        default=None, description="A Llama, Qwen3 or Granite checkpoint whose weights are the start: Hub id or path."
    )
    parametrization: Parametrization = Field(default_factory=Parametrization, description="Standard, or μP.")

    @model_validator(mode="after")
    def _sizes_fit(self) -> DecoderModelConfig:
        problems = list(_misfits(self.shape(vocab_size=1)))
        base = self.base_shape(vocab_size=1)
        if base is not None:
            problems += [f"parametrization.base: {problem}" for problem in self._base_misfits(base)]
        if self.parametrization.zero_head and self.tie_embeddings:
            problems.append("zero_head needs a head of its own, and tie_embeddings is true. Fix: zero_head=false.")
        if problems:
            raise ValueError(" · ".join(problems))
        return self

    def _base_misfits(self, base: DecoderShape) -> Iterator[str]:
        yield from _misfits(base)
        if base.num_heads * self.num_kv_heads != base.num_kv_heads * self.num_heads:
            yield (
                f"{base.num_heads} heads share {base.num_kv_heads} key/value heads, here {self.num_heads} share "
                f"{self.num_kv_heads}: the ratio must not change with width. "
                "Fix: the same num_heads / num_kv_heads in both."
            )

    def shape(self, vocab_size: int) -> DecoderShape:
        """The sizes of the decoder for a tokenizer of `vocab_size` tokens."""
        scaling = {} if self.rope_scaling is None else self.rope_scaling.model_dump(exclude_none=True)
        return DecoderShape(
            vocab_size=_round_up(vocab_size, self.vocab_multiple),
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim or self.hidden_size // self.num_heads,
            ffn_size=self.ffn_size or self._ffn_of(self.hidden_size),
            max_length=self.max_length,
            rope_theta=self.rope_theta,
            rope_scaling=MappingProxyType(scaling),
            qk_norm=self.qk_norm,
            tie_embeddings=self.tie_embeddings,
            norm_eps=self.norm_eps,
        )

    def base_shape(self, vocab_size: int) -> DecoderShape | None:
        """The sizes of the base; None under the standard parametrization."""
        base, own = self.parametrization.base, self.shape(vocab_size)
        if base is None:
            return None
        if base.num_heads is None:  # the width of a head is kept, so that their number falls
            head_dim = base.head_dim or own.head_dim
            heads = max(1, base.hidden_size // head_dim)
        else:
            heads = base.num_heads
            head_dim = base.head_dim or max(1, base.hidden_size // heads)
        ffn = self._ffn_of(base.hidden_size)
        if self.ffn_size is not None:
            ffn = max(1, round(self.ffn_size * base.hidden_size / self.hidden_size))
        return dataclasses.replace(
            own,
            hidden_size=base.hidden_size,
            num_layers=base.num_layers or own.num_layers,
            num_heads=heads,
            num_kv_heads=base.num_kv_heads or max(1, heads * own.num_kv_heads // own.num_heads),
            head_dim=head_dim,
            ffn_size=base.ffn_size or ffn,
        )

    def _ffn_of(self, hidden_size: int) -> int:
        return _round_up(-(-8 * hidden_size // 3), self.ffn_multiple)


def _misfits(shape: DecoderShape) -> Iterator[str]:
    if shape.hidden_size % shape.num_heads:
        yield (
            f"hidden_size={shape.hidden_size} is no multiple of num_heads={shape.num_heads}. "
            f"Fix: num_heads={_nearest_divisor(shape.hidden_size, shape.num_heads)}."
        )
    if shape.num_heads % shape.num_kv_heads:
        yield (
            f"num_heads={shape.num_heads} is no multiple of num_kv_heads={shape.num_kv_heads}. "
            f"Fix: num_kv_heads={_nearest_divisor(shape.num_heads, shape.num_kv_heads)}."
        )
    if shape.head_dim % 2:
        yield f"head_dim={shape.head_dim} is odd, and rotary positions turn pairs. Fix: head_dim={shape.head_dim + 1}."


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _nearest_divisor(value: int, wanted: int) -> int:
    return min((number for number in range(1, value + 1) if value % number == 0), key=lambda n: abs(n - wanted))
