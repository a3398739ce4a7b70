"""Frozen weights in 4 or 8 bits (bitsandbytes), for LoRA to be trained on: QLoRA.

Weights are read as they are, the head and every new module found, and only then the rest is quantized, so that a module
that is trained never loses a bit. The same weights and options quantize to the same values, which is why an adapter
needs only to know them (quantization.json) to be read back with the logits that it was trained with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, MissingDependencyError
from supertrainer.core.files import read_json, write_json
from supertrainer.models.loading import quiet_transformers, write_weights

QUANTIZATION_FILE = "quantization.json"  # beside an adapter: how its frozen weights are quantized
_SKIPPED = "llm_int8_skip_modules"  # BitsAndBytesConfig's name for what stays as it is, in 4 bits too


def quantize(
    model: PreTrainedModel,
    auto_class: Any,
    *,
    bitsandbytes_kwargs: Mapping[str, Any],
    unquantized: Sequence[str],
    device: torch.device,
    options: Mapping[str, Any],
    directory: Path,
) -> PreTrainedModel:
    """The model with its linear layers quantized.

    Args:
        model: with its weights.
        auto_class: the transformers class that reads it.
        bitsandbytes_kwargs: keys of `BitsAndBytesConfig`.
        unquantized: modules that are trained whole, by full name.
        device: where it will run. Computing is in float32 on a CPU, in bfloat16 on a GPU, unless the kwargs say.
        options: further arguments of `from_pretrained`: dtype, attn_implementation.
        directory: an empty one, which gets the weights as they are.

    Raises:
        MissingDependencyError: bitsandbytes isn't installed.
        ConfigError: it refuses the options.
    """
    from transformers import BitsAndBytesConfig

    given = thaw(bitsandbytes_kwargs)
    given.setdefault("bnb_4bit_compute_dtype", compute_dtype(device))
    given[_SKIPPED] = list(dict.fromkeys([*(given.get(_SKIPPED) or ()), *unquantized]))
    try:
        with quiet_transformers():
            write_weights(model, directory)
            quantized: PreTrainedModel = auto_class.from_pretrained(
                directory,
                quantization_config=BitsAndBytesConfig(**given),
                use_safetensors=True,
                device_map={"": str(device)},
                **options,
            )
    except ImportError as error:
        raise MissingDependencyError(
            "trainer.bitsandbytes_kwargs needs bitsandbytes, which can't be imported.",
            why=str(error).splitlines()[0],
            fix="pip install bitsandbytes.",
        ) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(
            "trainer.bitsandbytes_kwargs can't be applied to this model.",
            why=str(error).splitlines()[0],
            fix="see transformers.BitsAndBytesConfig.",
        ) from error
    _keep_differentiable(quantized)
    return quantized


def _keep_differentiable(model: nn.Module) -> None:
    """Keeps bitsandbytes from laying 4-bit weights out anew at the first pass without gradients.

    It does so on CPUs with AVX512-BF16, for good, and what multiplies by weights laid out so has no backward pass: a
    model that was looked at before it is trained would get no gradients below its last such layer.
    """
    import bitsandbytes as bnb

    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            module.support_avx512bf16_for_cpu = False


def compute_dtype(device: torch.device) -> str:
    """What 4-bit weights are multiplied in where the config doesn't say: a CPU takes 10 times as long in bfloat16."""
    if device.type == "cpu":
        return "float32"
    return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"


def is_quantized(model: nn.Module) -> bool:
    """Whether a model, without an adapter around it, holds quantized weights."""
    return "quantization_config" in vars(model.config)


def dequantized(model: PreTrainedModel) -> PreTrainedModel:
    """The model with full-width weights that hold what the quantized ones stand for."""
    plain: PreTrainedModel = model.dequantize()
    vars(plain.config).pop("quantization_config", None)
    plain.hf_quantizer = None  # the library would write it as if it were quantized still
    return plain


def write_quantization(base: PreTrainedModel, directory: Path) -> None:
    """Writes how the frozen weights are quantized; config.json doesn't: no file holds quantized weights."""
    options = base.config.quantization_config.to_dict()
    write_json(directory / QUANTIZATION_FILE, {key: value for key, value in options.items() if not key.startswith("_")})
    plain = read_json(directory / "config.json")
    plain.pop("quantization_config", None)
    write_json(directory / "config.json", plain)


def read_quantization(directory: Path) -> dict[str, Any] | None:
    """The keys of `BitsAndBytesConfig` of an adapter's frozen weights; None where they aren't quantized."""
    file = directory / QUANTIZATION_FILE
    if not file.is_file():
        return None
    options: dict[str, Any] = read_json(file)
    options.pop("quant_method", None)
    return options


def parameter_count(parameter: nn.Parameter) -> int:
    """How many weights a parameter stands for: of 4-bit ones, whose storage holds two in a byte, too."""
    if type(parameter).__name__ == "Params4bit":
        return int(parameter.quant_state.shape.numel())
    return parameter.numel()
