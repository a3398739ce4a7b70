"""The frozen weights of an adapter: where they are, how they are kept beside it, and the adapter put on them again."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.core.files import read_json
from supertrainer.models.architecture import read_config
from supertrainer.models.generation import read_generation
from supertrainer.models.heads import auto_class_of, saved_task
from supertrainer.models.loading import carry_code, loading_options, quiet_transformers
from supertrainer.models.quantization import dequantized, quantize, read_quantization
from supertrainer.models.schema import ModelKwargs
from supertrainer.models.sources import ADAPTER_CONFIG_FILE, CONFIG_FILE, Source, find_source

BASE_FILE = "base.json"  # beside an adapter: the source of its frozen weights, as the config named it
BASE_FOLDER = "base_model"  # beside an adapter: the frozen weights themselves, where no source holds them

FrozenWeights = Literal["as_trained", "dequantized", "original"]
"""Quantized as in training · in full width, as the quantized ones are rounded · as their source has them."""


def load_adapter(
    source: Source, *, model_kwargs: ModelKwargs, device: torch.device, trust: bool, frozen: FrozenWeights
) -> nn.Module:
    """An adapter on its frozen weights.

    Args:
        source: a directory with an adapter.
        trust: whether code that comes with the frozen weights may run.
        frozen: what they are to be; see `FrozenWeights`.

    Raises:
        ConfigError: its frozen weights aren't there.
        CheckpointError: it lacks weights.
    """
    base = base_of(source)
    own_config = source.directory / CONFIG_FILE
    config = read_config(source.directory if own_config.is_file() else base.directory, trust_remote_code=trust)
    text = config.get_text_config()
    held = read_config(base.directory, trust_remote_code=trust).get_text_config().vocab_size
    vocabulary, text.vocab_size = text.vocab_size, held
    auto_class = auto_class_of(saved_task(config), config)
    options = loading_options(model_kwargs, config=config, device=device)
    with quiet_transformers():
        model = auto_class.from_pretrained(
            base.directory,
            config=config,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=trust,
            **options,
        )
        if vocabulary != held:  # before the adapter: its saved embedding has the grown shape
            model.resize_token_embeddings(vocabulary, mean_resizing=False)
        quantization = read_quantization(source.directory)
        if quantization is not None and frozen != "original":
            with tempfile.TemporaryDirectory(prefix="supertrainer-unquantized-") as folder:
                model = quantize(
                    model,
                    auto_class,
                    bitsandbytes_kwargs=quantization,
                    unquantized=(),
                    device=device,
                    options={**options, "trust_remote_code": trust},
                    directory=Path(folder),
                )
            model = dequantized(model) if frozen == "dequantized" else model
        read_generation(model, source.directory)
        adapted, lost = _attach(model, source.directory)
    if lost:
        raise CheckpointError(
            f"{source.directory}: the adapter lacks weights that its config names.",
            why=lost[:300],
            fix="train it again, or take another checkpoint.",
        )
    return adapted


def _attach(model: PreTrainedModel, directory: Path) -> tuple[nn.Module, str]:
    """Puts a saved adapter on its base. The text says which weights the file lacks; empty where it lacks none."""
    from peft import PeftModel

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            adapted = PeftModel.from_pretrained(model, str(directory))
        except KeyError as error:  # a module that is trained whole
            return model, f"{error} is missing"
    lost = [str(warning.message) for warning in said if "missing adapter keys" in str(warning.message).lower()]
    return adapted, "; ".join(lost)


def base_of(source: Source) -> Source:
    """Where an adapter's frozen weights are: beside it, where base.json says, or where PEFT's own config says."""
    if (source.directory / BASE_FOLDER / CONFIG_FILE).is_file():
        return Source(source.reference, source.directory / BASE_FOLDER)
    if (source.directory / BASE_FILE).is_file():
        base = read_json(source.directory / BASE_FILE)
        return find_source(base["source"], revision=base["commit"] or base["revision"], gguf_file=base.get("gguf_file"))
    from peft import PeftConfig

    peft_config = PeftConfig.from_pretrained(str(source.directory))
    if peft_config.base_model_name_or_path is None:
        raise ConfigError(
            f"{source.reference} is an adapter that doesn't say on which model.",
            fix=f"put the model's name into base_model_name_or_path of {source.directory / ADAPTER_CONFIG_FILE}.",
        )
    return find_source(peft_config.base_model_name_or_path, revision=peft_config.revision)


def write_base(model: Any, directory: Path, *, unquantized: Path | None) -> None:
    """The frozen model of an adapter as it was before it: its names without PEFT's wrappers. Nothing for others."""
    from peft import PeftModel
    from safetensors.torch import save_file

    if not isinstance(model, PeftModel):
        return
    if unquantized is not None:
        shutil.copytree(unquantized, directory)
        return
    base = model.get_base_model()
    tensors = {}
    for name, tensor in base.state_dict().items():
        if "lora_" in name or ".modules_to_save." in name or ".trainable_tokens_" in name:
            continue
        plain = name.replace(".token_adapter.", ".").replace(".base_layer.", ".").replace(".original_module.", ".")
        tensors[plain] = tensor.detach().cpu().contiguous().clone()  # a file can't hold a tensor that two names share
    directory.mkdir()
    base.config.save_pretrained(directory)
    carry_code(base, directory)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
