"""The architecture's config: built, overridden, and asked what it can take."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.strict import thaw
from supertrainer.config.tasks import DEFAULT_TASK, LANGUAGE_TASKS, Task
from supertrainer.core.errors import ConfigError, MissingDependencyError, Problem, raise_all

OWN_KEY = "supertrainer"
"""Of config.json: how the model is to be used, such as {"long_texts": "stride", "threshold": 0.5}."""

PROBLEM_TYPES: Mapping[Task, str] = {
    "sequence_classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}

# What of a config's fields means that positions are rotary: no table of positions to run out of, padding on any side.
_ROTARY_FIELDS = frozenset({"rope_parameters", "rope_theta", "rope_scaling", "global_rope_theta"})
_FLASH_PACKAGE = "flash_attn"


def read_config(directory: Path, *, trust_remote_code: bool) -> PreTrainedConfig:
    """The architecture config of a model directory.

    Raises:
        ConfigError: it isn't one that the installed transformers knows.
    """
    try:
        return AutoConfig.from_pretrained(directory, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise ConfigError(
            f"{directory}/config.json is not an architecture that can be built.",
            why=str(error).splitlines()[0],
            fix="name another model, or set model.trust_remote_code=true where the code that it brings may run.",
        ) from error


def config_from_scratch(values: Mapping[str, Any], *, tokenizer: PreTrainedTokenizerBase) -> PreTrainedConfig:
    """The config of an untrained model. Vocabulary size and special ids follow the tokenizer where they aren't given.

    Raises:
        ConfigError: an unknown architecture or key, each with the nearest name, or a value of a wrong type.
    """
    given = thaw(values)
    model_type = given.pop("model_type")
    if model_type not in CONFIG_MAPPING:
        raise ConfigError(
            f"model.config.model_type={model_type!r} is not an architecture of the installed transformers.",
            fix=did_you_mean(str(model_type), CONFIG_MAPPING.keys()),
        )
    config_class = CONFIG_MAPPING[model_type]
    known = field_names(config_class)
    raise_all(ConfigError, _unknown_keys(given, known, where="model.config", model_type=model_type))
    if "vocab_size" in known:
        given.setdefault("vocab_size", len(tokenizer))
    given.setdefault("pad_token_id", tokenizer.pad_token_id)
    for name, number in (("bos_token_id", tokenizer.bos_token_id), ("eos_token_id", tokenizer.eos_token_id)):
        if number is not None:
            given.setdefault(name, number)  # an architecture's own default is another tokenizer's
    return _checked(lambda: config_class(**given), where="model.config")


def require_unquantized(config: PreTrainedConfig, *, source: str | None) -> None:
    """Refuses a source whose weights are quantized for good.

    Raises:
        ConfigError: its config says so.
    """
    if "quantization_config" in config.to_dict():
        raise ConfigError(
            f"model.source={source} holds weights that are quantized already.",
            why="what is trained and merged is based on the weights as they were before.",
            fix="name the model that it was made from; trainer.bitsandbytes_kwargs quantizes it while it is read.",
        )


def override_config(config: PreTrainedConfig, overrides: Mapping[str, Any]) -> PreTrainedConfig:
    """The same config with some keys changed, those of a part beside what else the part has.

    Raises:
        ConfigError: an unknown key, with the nearest name, or a value of a wrong type.
    """
    given = thaw(overrides)
    known = field_names(type(config))
    raise_all(ConfigError, _unknown_keys(given, known, where="model.config_overrides", model_type=config.model_type))
    values = config.to_dict()
    parts = {key: {**values[key], **part} for key, part in given.items() if key in config.sub_configs and part}
    return _checked(lambda: type(config).from_dict({**values, **given, **parts}), where="model.config_overrides")


def field_names(config_class: type[PreTrainedConfig]) -> frozenset[str]:
    """Every key that a config class declares, with the aliases that it accepts for them."""
    fields = {field.name for field in dataclasses.fields(config_class) if not field.name.startswith("_")}
    return frozenset(fields | set(config_class.attribute_map))


def _unknown_keys(given: Mapping[str, Any], known: Iterable[str], *, where: str, model_type: str) -> list[Problem]:
    return [
        Problem(f"{where}.{key}={value!r}: {model_type} has no parameter {key!r}.", fix=did_you_mean(key, known))
        for key, value in given.items()
        if key not in known
    ]


def _checked(make: Any, *, where: str) -> PreTrainedConfig:
    from huggingface_hub.errors import StrictDataclassError

    try:
        return make()
    except (StrictDataclassError, TypeError, ValueError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ConfigError(
            f"{where}: {' '.join(lines[:2])}", fix="give the type and range that this architecture takes."
        ) from error


def build_skeleton(
    auto_class: Any, config: PreTrainedConfig, *, attention: str, trust_remote_code: bool
) -> PreTrainedModel:
    """The model without weights, on the meta device: what is there to look at before anything is loaded.

    Raises:
        ConfigError: the architecture has no head for this task, or can't run this attention.
        MissingDependencyError: the attention needs a package that isn't installed.
    """
    require_attention(attention)
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    try:
        with torch.device("meta"):
            return auto_class.from_config(config, trust_remote_code=trust_remote_code, **chosen)
    except ImportError as error:
        raise MissingDependencyError(
            f"trainer.model_kwargs.attn_implementation={attention} can't be used here.",
            why=str(error).splitlines()[0],
            fix="trainer/common/model_kwargs@trainer.model_kwargs=sdpa needs no further package.",
        ) from error
    except ValueError as error:
        about_attention = attention != "auto" and attention.split("_")[0] in str(error).lower()
        raise ConfigError(
            f"a {config.model_type} model can't be built"
            + (f" with attn_implementation={attention}." if about_attention else " from this config."),
            why=str(error).splitlines()[0],
            fix="attn_implementation=eager works for every architecture."
            if about_attention
            else "change model.config.",
        ) from error


def skeletons(
    auto_class: Any, config: PreTrainedConfig, *, task: Task, attention: str, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedModel]:
    """The model on the meta device with its classes, and with one more: what differs has a row per class."""
    names: Mapping[int, str] = config.id2label or {}
    more = with_labels(config, (*(names[index] for index in sorted(names)), "\0one more"), task=task)
    options: Any = {"attention": attention, "trust_remote_code": trust_remote_code}
    return build_skeleton(auto_class, config, **options), build_skeleton(auto_class, more, **options)


def require_positions(limit: int | None, max_length: int) -> None:
    """Refuses inputs that are longer than the positions of a model.

    Raises:
        ConfigError: `max_length` tokens don't fit.
    """
    if limit is not None and max_length > limit:
        raise ConfigError(
            f"dataset.max_length={max_length} is more than the {limit} positions of the model.",
            why="tokens after the last position have no embedding.",
            fix=f"dataset.max_length={limit} or less.",
        )


def require_attention(attention: str) -> None:
    """Refuses an attention whose package isn't there.

    Raises:
        MissingDependencyError: names the package and the alternative.
    """
    if attention == "flash_attention_2" and importlib.util.find_spec(_FLASH_PACKAGE) is None:
        raise MissingDependencyError(
            "trainer.model_kwargs.attn_implementation=flash_attention_2 needs flash-attn, which is not installed.",
            why="it has kernels for NVIDIA and AMD GPUs only.",
            fix="trainer/common/model_kwargs@trainer.model_kwargs=sdpa computes the same with what is here.",
        )


def max_positions(model: PreTrainedModel) -> int | None:
    """The longest input in tokens; None where the architecture has no limit.

    A position table with a padding row (RoBERTa's family) starts counting after it.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and name.endswith("position_embeddings"):
            offset = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - offset
    limit = model.config.to_dict().get("max_position_embeddings")
    return int(limit) if limit else None


def check_padding_side(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses padding before the text where positions are counted from the first token.

    Raises:
        ConfigError: padding on the left with absolute positions.
    """
    rotary = _ROTARY_FIELDS & (set(config.to_dict()) | field_names(type(config)))
    if tokenizer.padding_side == "left" and not rotary:
        raise ConfigError(
            f"padding_side=left for a {config.model_type} model.",
            why="its positions are counted from the first token, padding included: a text would change with its batch.",
            fix="model.padding_side=right.",
        )


def with_labels(config: PreTrainedConfig, label_names: Sequence[str], *, task: Task = DEFAULT_TASK) -> PreTrainedConfig:
    """A copy of the config with these classes, in the order of their ids; for a task without labels as it is."""
    values = config.to_dict()
    values.pop("num_labels", None)
    values.pop(OWN_KEY, None)  # what an earlier training noted; this one notes its own
    if task not in LANGUAGE_TASKS:
        values["id2label"] = dict(enumerate(label_names))
        values["label2id"] = {name: index for index, name in enumerate(label_names)}
        values["problem_type"] = PROBLEM_TYPES.get(task)
    copied = type(config).from_dict(values)
    copied.name_or_path = config.name_or_path if values.get("auto_map") else ""  # where its own code is
    return copied
