"""The decoder as transformers knows it, and back: names, a config, and μP's multipliers folded into weights.

    multiplier     folded into                            as a Granite config has it
    embedding      the embedding                          embedding_multiplier
    attention      queries, or the norm on them           attention_multiplier
    residual       what a block adds: output and down     residual_multiplier
    output         the final norm, where a tied head      logits_scaling
                   takes the embedding's back too

A power of two changes no bit of the logits, another factor what rounding changes. What is here called plain is the
state of a decoder whose multipliers are all one, attention by 1/√d: the names are ours, the values Llama's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.core.files import read_json
from supertrainer.models.decoder_schema import DecoderShape
from supertrainer.models.mup import Multipliers, MupTable
from supertrainer.models.sources import CONFIG_FILE, Source, find_source
from supertrainer.models.weights import stored_tensors

Form = Literal["llama", "granite"]
_ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "granite": "GraniteForCausalLM"}

_OUTER = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight"}
_HEAD = ("head.weight", "lm_head.weight")
_IN_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn.gate": "mlp.gate_proj",
    "ffn.up": "mlp.up_proj",
    "ffn.down": "mlp.down_proj",
}
_QK_NORMS = {"attention.query_norm": "self_attn.q_norm", "attention.key_norm": "self_attn.k_norm"}


def to_llama(
    shape: DecoderShape, table: MupTable, state: Mapping[str, Tensor], *, form: Form = "llama"
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A decoder's config and weights as transformers has them.

    Args:
        state: of a decoder, whole tensors.
        form: llama folds the multipliers (the architecture is Qwen3's where queries and keys are normalized); granite
            keeps the weights as they are and writes the multipliers into the config.

    Returns:
        What config.json says, and the weights by transformers' names; a tied head is the embedding and not among them.

    Raises:
        ConfigError: granite with norms on queries and keys, which that architecture doesn't have.
    """
    if form == "granite" and (shape.qk_norm or shape.head_dim * shape.num_heads != shape.hidden_size):
        what = "norms on queries and keys" if shape.qk_norm else f"heads of {shape.head_dim}"
        raise ConfigError(
            f"a Granite model has no {what}.",
            why="its config says only what Granite's architecture is.",
            fix="form=llama folds the multipliers into the weights.",
        )
    factors = {} if form == "granite" else folded_factors(shape, table.multipliers)
    names = hf_names(shape)
    weights = {names[name]: _times(tensor, factors.get(name, 1.0)) for name, tensor in state.items()}
    return _config(shape, table.multipliers, form=form), weights


def from_llama(directory: Path | str | Source) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """The sizes of a Llama, Qwen3 or Granite checkpoint, and its weights as a plain state.

    Returns:
        The sizes by the names of `DecoderShape`, and a mapping that reads a weight when it is asked for.

    Raises:
        ConfigError: another architecture, or one with biases or windows, which the decoder doesn't have.
    """
    source = directory if isinstance(directory, Source) else find_source(str(directory))
    config = read_json(source.directory / CONFIG_FILE)
    facts = _facts(config, source=source)
    shape = DecoderShape(**facts)
    multipliers = _multipliers_of(config, shape)
    return facts, _Stored(source, shape, folded_factors(shape, multipliers))


def as_start(
    reference: str,
    facts: Mapping[str, Any],
    plain: Mapping[str, Tensor],
    *,
    shape: DecoderShape,
    multipliers: Multipliers,
) -> Mapping[str, Tensor]:
    """A plain state as the start of a decoder with these multipliers.

    Args:
        reference: where it is from, for messages.
        facts: its sizes, as `from_llama` gives them.
        plain: the weights.

    Raises:
        ConfigError: its sizes aren't those of the decoder, all of them at once.
    """
    own = {name: thaw(value) for name, value in vars(shape).items()}
    problems = [
        Problem(
            f"model.{name}={own[name]}: {reference} has {facts[name]}.",
            why="its weights are the start, so the decoder has to be as it is.",
            fix=f"model.{name}={facts[name]}, or model.source=null.",
        )
        for name in own
        if name not in ("vocab_size", "max_length") and own[name] != facts[name]
    ]
    if facts["vocab_size"] > shape.vocab_size:
        problems.append(
            Problem(
                f"{reference} has {facts['vocab_size']} tokens, and the decoder {shape.vocab_size}.",
                why="the rows of its embedding belong to its own tokenizer.",
                fix="dataset.tokenizer=<that of the source>; or a greater model.vocab_multiple.",
            )
        )
    raise_all(ConfigError, problems)
    return scaled(plain, {name: 1 / factor for name, factor in folded_factors(shape, multipliers).items()})


def scaled(state: Mapping[str, Tensor], factors: Mapping[str, float]) -> Mapping[str, Tensor]:
    """A state of which some weights are multiplied as they are read."""
    return _Scaled(state, factors)


def folded_factors(shape: DecoderShape, multipliers: Multipliers) -> dict[str, float]:
    """By what each weight is multiplied to make a plain state of a decoder's; names that aren't there stay."""
    attention = multipliers.attention / shape.head_dim**-0.5
    factors = {
        "embedding.weight": multipliers.embedding,
        "norm.weight": multipliers.output / (multipliers.embedding if shape.tie_embeddings else 1.0),
    }
    for index in range(shape.num_layers):
        asks = "query_norm" if shape.qk_norm else "query"
        factors[f"blocks.{index}.attention.{asks}.weight"] = attention
        for name in ("attention.output", "ffn.down"):
            factors[f"blocks.{index}.{name}.weight"] = multipliers.residual
    return {name: factor for name, factor in factors.items() if factor != 1.0}


def hf_names(shape: DecoderShape) -> dict[str, str]:
    """transformers' name of every parameter of a decoder."""
    names = dict(_OUTER)
    inside = {**_IN_BLOCK, **(_QK_NORMS if shape.qk_norm else {})}
    for index in range(shape.num_layers):
        names |= {f"blocks.{index}.{own}.weight": f"model.layers.{index}.{hf}.weight" for own, hf in inside.items()}
    return names if shape.tie_embeddings else {**names, _HEAD[0]: _HEAD[1]}


def _config(shape: DecoderShape, multipliers: Multipliers, *, form: Form) -> dict[str, Any]:
    model_type = "qwen3" if form == "llama" and shape.qk_norm else form
    rope = {"rope_type": "default", **thaw(shape.rope_scaling), "rope_theta": shape.rope_theta}
    config: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.ffn_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_length,
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": rope,
        "rope_theta": shape.rope_theta,  # transformers 4 reads it here, and takes its default where it isn't
        "tie_word_embeddings": shape.tie_embeddings,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_cache": True,
    }
    if shape.rope_scaling:
        config["rope_scaling"] = thaw(shape.rope_scaling)  # likewise
    if model_type != "granite":
        config["head_dim"] = shape.head_dim
    if model_type != "qwen3":
        config["mlp_bias"] = False
    if model_type == "granite":
        config |= {
            "embedding_multiplier": multipliers.embedding,
            "attention_multiplier": multipliers.attention,
            "residual_multiplier": multipliers.residual,
            "logits_scaling": 1 / multipliers.output,
        }
    return config


def _facts(config: Mapping[str, Any], *, source: Source) -> dict[str, Any]:
    """The values of a DecoderShape out of config.json, of either generation of transformers."""
    refused = [
        f"{key}={config[key]}"
        for key in ("attention_bias", "mlp_bias", "use_sliding_window")
        if config.get(key) not in (None, False)
    ]
    if config.get("hidden_act", "silu") != "silu":
        refused.append(f"hidden_act={config['hidden_act']}")
    if config.get("model_type") not in _ARCHITECTURES or refused:
        raise ConfigError(
            f"model.source={source.reference} is a {config.get('model_type')} model"
            + (f" with {', '.join(refused)}." if refused else "."),
            why="the decoder has what plain Llama, Qwen3 and Granite models have, and nothing else.",
            fix="name one of these, or fine-tune it with +experiment=train_llm.",
        )
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    theta = rope.pop("rope_theta", None) or config.get("rope_theta", 10000.0)
    kind = rope.pop("rope_type", rope.pop("type", "default"))
    heads = config["num_attention_heads"]
    return {
        "vocab_size": config["vocab_size"],
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_heads": heads,
        "num_kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "ffn_size": config["intermediate_size"],
        "max_length": config["max_position_embeddings"],
        "rope_theta": float(theta),
        "rope_scaling": {} if kind == "default" else {"rope_type": kind, **rope},
        "qk_norm": config["model_type"] == "qwen3",
        "tie_embeddings": bool(config.get("tie_word_embeddings", False)),
        "norm_eps": config["rms_norm_eps"],
    }


def _multipliers_of(config: Mapping[str, Any], shape: DecoderShape) -> Multipliers:
    if config["model_type"] != "granite":
        return Multipliers(attention=shape.head_dim**-0.5)
    return Multipliers(
        attention=float(config.get("attention_multiplier", 1.0)),
        embedding=float(config.get("embedding_multiplier", 1.0)),
        residual=float(config.get("residual_multiplier", 1.0)),
        output=1 / float(config.get("logits_scaling", 1.0)),
    )


class _Scaled(Mapping[str, Tensor]):
    def __init__(self, state: Mapping[str, Tensor], factors: Mapping[str, float]) -> None:
        self._state, self._factors = state, factors

    def __getitem__(self, name: str) -> Tensor:
        return _times(self._state[name], self._factors.get(name, 1.0))

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class _Stored(Mapping[str, Tensor]):
    """The safetensors of a source by the decoder's names, read when asked for, as a plain state in float32."""

    def __init__(self, source: Source, shape: DecoderShape, factors: Mapping[str, float]) -> None:
        self._source, self._factors, self._names = source, factors, hf_names(shape)
        self._files = {name: held.file for name, held in stored_tensors(source).items()}
        absent = sorted(set(self._names.values()) - self._files.keys())
        if absent:
            raise ConfigError(
                f"{source.reference} has no weights for {', '.join(absent[:3])}{' …' if len(absent) > 3 else ''}.",
                why="the decoder would start at random there.",
                fix="name a whole model.",
            )

    def __getitem__(self, name: str) -> Tensor:
        from safetensors import safe_open

        stored = self._names[name]
        with safe_open(self._source.directory / self._files[stored], framework="pt") as file:
            return _times(file.get_tensor(stored).float(), self._factors.get(name, 1.0))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _times(tensor: Tensor, factor: float) -> Tensor:
    return tensor if factor == 1.0 else tensor * factor
