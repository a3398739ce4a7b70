"""The config of a vision-language model from scratch, and what of such models can't be trained here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedTokenizerBase, ProcessorMixin

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.models.architecture import config_from_scratch, field_names
from supertrainer.models.processors import tokenizer_of

_IMAGE_TOKEN = "image_token_id"
_ENCODER_DECODER = "florence2"
_BESIDE_TEXT = ("mllama",)


def config_of_pictures(values: Mapping[str, Any], *, processor: ProcessorMixin) -> PreTrainedConfig:
    """The config of an untrained model. Vocabulary, special ids and the picture's token follow the processor.

    Raises:
        ConfigError: an unknown architecture or key, in a tower's config too, each with the nearest name.
    """
    given, tokenizer = thaw(values), tokenizer_of(processor)
    if given["model_type"] not in CONFIG_MAPPING:
        return config_from_scratch(given, tokenizer=tokenizer)  # which says so
    kind = CONFIG_MAPPING[given["model_type"]]
    usual = {name: part for name, part in vars(kind()).items() if isinstance(part, PreTrainedConfig)}
    raise_all(
        ConfigError,
        [problem for name in usual for problem in _unknown(given.get(name) or {}, usual=usual[name], part=name)],
    )
    text = given.setdefault("text_config", {}) if "text_config" in usual else given
    text.setdefault("vocab_size", len(tokenizer))
    ids = {"pad": tokenizer.pad_token_id, "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
    for name, number in ids.items():
        text.setdefault(f"{name}_token_id", number)
    if _IMAGE_TOKEN in field_names(kind):
        given.setdefault(_IMAGE_TOKEN, vars(processor)[_IMAGE_TOKEN])
    return config_from_scratch(given, tokenizer=tokenizer)


def require_trainable(config: PreTrainedConfig) -> None:
    """Refuses encoder-decoders but Florence-2, and models that look at pictures beside the text.

    Raises:
        ConfigError: it is such a model.
    """
    text = config.get_text_config()
    kind = config.model_type
    if kind != _ENCODER_DECODER and (config.is_encoder_decoder or text.is_encoder_decoder):
        raise ConfigError(
            f"a {kind} model over {text.model_type} is an encoder-decoder; of these only Florence-2 is trained here.",
            why="its processor writes one text, and nothing of it says what is the encoder's and what the decoder's.",
            fix="model=mllm/florence_2, or a decoder-only model, such as model=mllm/smolvlm_256m; of InstructBLIP the "
            "Vicuna variants.",
        )
    if kind in _BESIDE_TEXT:
        raise ConfigError(
            f"a {kind} model looks at pictures by cross-attention, which isn't trained here.",
            why="the tokens of pictures have to stand between those of the text.",
            fix="a model such as model=mllm/smolvlm_256m, qwen2_5_vl_3b or gemma_3_4b.",
        )


def require_answer_start(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that a decoder begins with the tokens that its answers are written behind; see `answer_start`.

    Raises:
        ConfigError: the tokenizer has no such token, or the config says another one.
    """
    if not config.is_encoder_decoder:
        return
    text = config.get_text_config()
    if tokenizer.bos_token is None or tokenizer.eos_token_id != text.decoder_start_token_id:
        raise ConfigError(
            f"the decoder of this {config.model_type} model begins with token {text.decoder_start_token_id}, and the "
            f"tokenizer ends a text with {tokenizer.eos_token_id} and begins one with {tokenizer.bos_token_id}.",
            why="answers are written behind the token that ends a text and the one that begins one.",
            fix="model.tokenizer=<a directory with the model's own processor>.",
        )


def require_forward(model: nn.Module) -> None:
    """Refuses code that can't be called as a model.

    Raises:
        ConfigError: its class has no forward pass.
    """
    if type(model).forward is nn.Module.forward:
        raise ConfigError(
            f"{type(model).__name__}, the code that comes with the model, has no forward pass.",
            why="it answers questions by methods of its own, and training needs logits of given tokens.",
            fix="model.revision=<one whose code has it>, or a model that transformers itself knows.",
        )


def _unknown(inner: Mapping[str, Any], *, usual: PreTrainedConfig, part: str) -> list[Problem]:
    """What of a tower's config its architecture doesn't know."""
    model_type = inner.get("model_type", usual.model_type)
    if model_type not in CONFIG_MAPPING and model_type != usual.model_type:
        fix = did_you_mean(str(model_type), CONFIG_MAPPING.keys())
        return [Problem(f"model.config.{part}.model_type={model_type!r} is no architecture.", fix=fix)]
    known = field_names(type(usual) if model_type == usual.model_type else CONFIG_MAPPING[model_type])
    return [
        Problem(f"model.config.{part}.{key}: {model_type} has no parameter {key!r}.", fix=did_you_mean(key, known))
        for key in inner
        if key not in known and key != "model_type"
    ]
