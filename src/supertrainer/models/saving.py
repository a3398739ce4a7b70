"""A trained model as a standard Hugging Face or PEFT directory, and back.

Full fine-tuning writes what `AutoModelFor….from_pretrained` reads; an adapter writes what
`peft.PeftModel.from_pretrained` reads, with config.json beside it for the class names, base.json for where the frozen
weights are and quantization.json for how they are quantized. Reloaded logits equal the trained ones bit for bit on the
same machine, adapters unmerged included.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from supertrainer.config.tasks import Task
from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.core.files import fsync_path, read_json, write_json
from supertrainer.models.architecture import read_config
from supertrainer.models.heads import AUTO_CLASSES, noted, saved_task
from supertrainer.models.labels import label_names_of
from supertrainer.models.loading import quiet_transformers, reading_weights, resolve_dtype
from supertrainer.models.quantization import (
    dequantized,
    is_quantized,
    quantize,
    read_quantization,
    write_quantization,
)
from supertrainer.models.schema import ModelKwargs
from supertrainer.models.sources import ADAPTER_CONFIG_FILE, CONFIG_FILE, Source, find_source, require_safetensors
from supertrainer.models.tokenizers import reset_tokenizer, save_tokenizer

BASE_FILE = "base.json"  # beside an adapter: the source of its frozen weights, as the config named it
BASE_FOLDER = "base_model"  # beside an adapter: the frozen weights themselves, where no source holds them


@dataclass(frozen=True)
class TrainedModel:
    """What a model directory holds.

    Attributes:
        model: in eval mode, on the device that was asked for; a `PeftModel` where the directory holds an adapter.
        tokenizer: as it was saved.
        label_names: class names in the order of their ids; empty for a masked language model.
        task: what its head is for.
        noted: what training noted of how it is to be used, such as {"threshold": 0.5}.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    label_names: tuple[str, ...]
    task: Task
    noted: Mapping[str, Any]


def save_trained(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    *,
    base: Mapping[str, Any] | None = None,
    unquantized: Path | None = None,
) -> None:
    """Writes a model directory aside, forces it to the disk and renames it into place; an older one is replaced.

    Args:
        base: of an adapter, where its frozen weights come from (`TaskModel.base_reference`); None keeps them beside it.
        unquantized: where they are as they were before they were quantized (`TaskModel.unquantized`).

    Raises:
        OSError: the disk is full or not writable; what was there before is intact.
    """
    aside = directory.with_name(f".{directory.name}.incoming")
    shutil.rmtree(aside, ignore_errors=True)  # a killed process may have left it
    try:
        aside.mkdir(parents=True)
        write_model(model, tokenizer, aside, base=base)
        if base is None:
            _write_base(model, aside / BASE_FOLDER, unquantized=unquantized)
        for file in aside.rglob("*"):
            fsync_path(file)
        _replace(aside, directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    fsync_path(directory.parent)


def write_model(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    directory: Path,
    *,
    base: Mapping[str, Any] | None = None,
) -> None:
    """Writes the files of a model directory into an existing directory, without an adapter's frozen weights."""
    from peft import PeftModel

    with quiet_transformers():
        if isinstance(model, PeftModel):
            # False: PEFT would ask the Hub whether the vocabulary grew. An embedding that did is trained whole here.
            model.save_pretrained(directory, save_embedding_layers=False)
            (directory / "README.md").unlink(missing_ok=True)
            frozen = model.get_base_model()
            frozen.config.architectures = [type(frozen).__name__]  # the source's config may name the bare encoder
            frozen.config.save_pretrained(directory)
            if is_quantized(frozen):
                write_quantization(frozen, directory)
            if base is not None:
                write_json(directory / BASE_FILE, base)
        else:
            model.save_pretrained(directory)
    save_tokenizer(tokenizer, directory)


def load_trained(
    path: Path | str | Source,
    *,
    model_kwargs: ModelKwargs | None = None,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
    quantized: bool = True,
) -> TrainedModel:
    """Reads a model directory, a run directory of ours, or any Hugging Face encoder with a trained head.

    Args:
        path: directory, run directory, package:// or Hub id.
        model_kwargs: dtype and attention.
        quantized: False gives quantized weights back their full width, rounded as they are, so that an adapter can be
            folded into them.

    Raises:
        ConfigError: it isn't a model, or has no trained head.
        CheckpointError: weights are missing from it.
    """
    source = path if isinstance(path, Source) else find_source(str(path))
    device, model_kwargs = torch.device(device), model_kwargs or ModelKwargs()
    with reading_weights(source.directory):
        if source.is_adapter:
            model = _load_adapter(
                source, model_kwargs=model_kwargs, device=device, trust=trust_remote_code, quantized=quantized
            )
        else:
            model = _load_full(source, model_kwargs=model_kwargs, device=device, trust=trust_remote_code)
    tokenizer = AutoTokenizer.from_pretrained(source.directory, trust_remote_code=trust_remote_code)
    reset_tokenizer(tokenizer)
    config = model.config
    task = saved_task(config)
    names = () if task == "masked_lm" else label_names_of(config)
    return TrainedModel(model.to(device).eval(), tokenizer, names, task, noted(config))


def _load_full(source: Source, *, model_kwargs: ModelKwargs, device: torch.device, trust: bool) -> PreTrainedModel:
    require_safetensors(source)
    config = read_config(source.directory, trust_remote_code=trust)
    with quiet_transformers():
        model, info = AUTO_CLASSES[saved_task(config)].from_pretrained(
            source.directory,
            config=config,
            use_safetensors=True,
            output_loading_info=True,
            trust_remote_code=trust,
            **loading_options(model_kwargs, config=config, device=device),
        )
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ConfigError(
            f"{source.reference} has no weights for {', '.join(missing[:4])}{' …' if len(missing) > 4 else ''}.",
            why="a model without them would answer at random; a pretrained encoder has none before it is trained.",
            fix="name a trained run or a fine-tuned model, or train first.",
        )
    return model


def _load_adapter(
    source: Source, *, model_kwargs: ModelKwargs, device: torch.device, trust: bool, quantized: bool
) -> nn.Module:
    from peft import PeftConfig

    base = _base_source(source, PeftConfig.from_pretrained(str(source.directory)))
    own_config = source.directory / CONFIG_FILE
    config = read_config(source.directory if own_config.is_file() else base.directory, trust_remote_code=trust)
    vocabulary, held = config.vocab_size, read_config(base.directory, trust_remote_code=trust).vocab_size
    config.vocab_size = held
    auto_class, options = AUTO_CLASSES[saved_task(config)], loading_options(model_kwargs, config=config, device=device)
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
        if quantization is not None:
            with tempfile.TemporaryDirectory(prefix="supertrainer-unquantized-") as folder:
                model = quantize(
                    model,
                    auto_class,
                    bitsandbytes_kwargs=quantization,
                    unquantized=(),
                    device=device,
                    options=options,
                    directory=Path(folder),
                )
            model = model if quantized else dequantized(model)
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


def _base_source(source: Source, peft_config: Any) -> Source:
    """Where an adapter's frozen weights are: beside it, where base.json says, or where PEFT's own config says."""
    if (source.directory / BASE_FOLDER / CONFIG_FILE).is_file():
        return Source(source.reference, source.directory / BASE_FOLDER)
    if (source.directory / BASE_FILE).is_file():
        base = read_json(source.directory / BASE_FILE)
        return find_source(base["source"], revision=base["commit"] or base["revision"])
    if peft_config.base_model_name_or_path is None:
        raise ConfigError(
            f"{source.reference} is an adapter that doesn't say on which model.",
            fix=f"put the model's name into base_model_name_or_path of {source.directory / ADAPTER_CONFIG_FILE}.",
        )
    return find_source(peft_config.base_model_name_or_path, revision=peft_config.revision)


def loading_options(model_kwargs: ModelKwargs, *, config: Any, device: torch.device) -> dict[str, Any]:
    """The arguments of `from_pretrained` and `from_config` that `ModelKwargs` stands for."""
    attention = model_kwargs.attn_implementation
    return {
        "dtype": resolve_dtype(model_kwargs, config=config, device=device),
        **({} if attention == "auto" else {"attn_implementation": attention}),
    }


def _write_base(model: Any, directory: Path, *, unquantized: Path | None) -> None:
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
        if "lora_" in name or ".modules_to_save." in name:
            continue
        plain = name.replace(".base_layer.", ".").replace(".original_module.", ".")
        tensors[plain] = tensor.detach().cpu().contiguous()
    directory.mkdir()
    base.config.save_pretrained(directory)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def _replace(aside: Path, directory: Path) -> None:
    """Renames a directory into place. Two renames can't be one step: a kill between them leaves the older one aside,
    and the same command writes the model again.
    """
    older = directory.with_name(f".{directory.name}.older")
    shutil.rmtree(older, ignore_errors=True)
    if directory.exists():
        os.replace(directory, older)
    os.replace(aside, directory)
    shutil.rmtree(older, ignore_errors=True)
