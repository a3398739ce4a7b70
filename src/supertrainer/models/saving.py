"""A trained model as a standard Hugging Face or PEFT directory, and back.

Full fine-tuning writes what `AutoModelFor….from_pretrained` reads; an adapter writes what
`peft.PeftModel.from_pretrained` reads, with config.json beside it for the class names, base.json for where the frozen
weights are and quantization.json for how they are quantized. Reloaded logits equal the trained ones bit for bit on the
same machine, adapters unmerged included.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from supertrainer.config.tasks import GENERATIVE_TASKS, LANGUAGE_TASKS, Task
from supertrainer.core.errors import ConfigError
from supertrainer.core.files import fsync_path, write_json
from supertrainer.models.architecture import read_config
from supertrainer.models.frozen import BASE_FILE, BASE_FOLDER, FrozenWeights, load_adapter, write_base
from supertrainer.models.generation import write_generation
from supertrainer.models.heads import auto_class_of, noted, saved_task
from supertrainer.models.initial import START_FILE, write_plain, write_start
from supertrainer.models.labels import label_names_of
from supertrainer.models.loading import carry_code, loading_options, quiet_transformers, reading_weights
from supertrainer.models.processors import read_processor, save_reader, tokenizer_of
from supertrainer.models.quantization import is_quantized, write_quantization
from supertrainer.models.schema import ModelKwargs
from supertrainer.models.sources import Source, find_source, require_safetensors
from supertrainer.models.tokenizers import reset_tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """What a model directory holds.

    Attributes:
        model: in eval mode, on the device that was asked for; a `PeftModel` where the directory holds an adapter.
        tokenizer: as it was saved.
        processor: of a model of pictures, what reads them; its tokenizer is the one above.
        label_names: class names in the order of their ids; empty for a language model.
        task: what its head is for.
        noted: what training noted of how it is to be used, such as {"threshold": 0.5}.
    """

    model: nn.Module
    tokenizer: PreTrainedTokenizerBase
    label_names: tuple[str, ...]
    task: Task
    noted: Mapping[str, Any]
    processor: ProcessorMixin | None = None

    @property
    def reader(self) -> PreTrainedTokenizerBase | ProcessorMixin:
        """What its inputs go through, to be saved with it."""
        return self.processor or self.tokenizer


def save_trained(
    model: nn.Module,
    reader: PreTrainedTokenizerBase | ProcessorMixin,
    directory: Path,
    *,
    base: Mapping[str, Any] | None = None,
    unquantized: Path | None = None,
) -> None:
    """Writes a model directory aside, forces it to the disk and renames it into place; an older one is replaced.

    Args:
        reader: its tokenizer, or its processor.
        base: of an adapter, where its frozen weights come from (`TaskModel.base_reference`); None keeps them beside it.
        unquantized: where they are as they were before they were quantized (`TaskModel.unquantized`).

    Raises:
        OSError: the disk is full or not writable; what was there before is intact.
    """
    aside = directory.with_name(f".{directory.name}.incoming")
    shutil.rmtree(aside, ignore_errors=True)  # a killed process may have left it
    try:
        aside.mkdir(parents=True)
        write_model(model, reader, aside, base=base)
        (aside / START_FILE).unlink(missing_ok=True)
        if base is not None:
            write_plain(model, aside)
        else:
            write_base(model, aside / BASE_FOLDER, unquantized=unquantized)
        for file in aside.rglob("*"):
            fsync_path(file)
        replace_directory(aside, directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    fsync_path(directory.parent)


def write_model(
    model: nn.Module,
    reader: PreTrainedTokenizerBase | ProcessorMixin,
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
            write_start(model, directory)
            frozen = model.get_base_model()
            frozen.config.architectures = [type(frozen).__name__]  # the source's config may name the bare encoder
            frozen.config.save_pretrained(directory)
            carry_code(frozen, directory)
            write_generation(frozen, directory)
            if is_quantized(frozen):
                write_quantization(frozen, directory)
            if base is not None:
                write_json(directory / BASE_FILE, base)
        else:
            model.save_pretrained(directory)
    save_reader(reader, directory)


def load_trained(
    path: Path | str | Source,
    *,
    model_kwargs: ModelKwargs | None = None,
    device: torch.device | str = "cpu",
    trust_remote_code: bool = False,
    frozen: FrozenWeights = "as_trained",
) -> TrainedModel:
    """Reads a model directory, a run directory of ours, or any Hugging Face model with a trained head.

    Args:
        path: directory, run directory, package:// or Hub id.
        model_kwargs: dtype and attention.
        frozen: of an adapter, its frozen weights: dequantized ones have their full width back, rounded as they are, so
            that it can be folded into them.

    Raises:
        ConfigError: it isn't a model, or has no trained head.
        CheckpointError: weights are missing from it.
    """
    source = path if isinstance(path, Source) else find_source(str(path))
    device, model_kwargs = torch.device(device), model_kwargs or ModelKwargs()
    with reading_weights(source.directory):
        if source.is_adapter:
            model = load_adapter(
                source, model_kwargs=model_kwargs, device=device, trust=trust_remote_code, frozen=frozen
            )
        else:
            model = _load_full(source, model_kwargs=model_kwargs, device=device, trust=trust_remote_code)
    config = model.config
    task = saved_task(config)
    reader = saved_reader(source.directory, task=task, trust_remote_code=trust_remote_code)
    tokenizer = tokenizer_of(reader)
    if task in GENERATIVE_TASKS:
        tokenizer.padding_side = "left"  # texts go on at their end
    names = () if task in LANGUAGE_TASKS else label_names_of(config)
    processor = reader if isinstance(reader, ProcessorMixin) else None
    return TrainedModel(model.to(device).eval(), tokenizer, names, task, noted(config), processor)


def saved_reader(
    directory: Path, *, task: Task, trust_remote_code: bool = False
) -> PreTrainedTokenizerBase | ProcessorMixin:
    """What the inputs of a saved model go through: its tokenizer, or what reads pictures beside text.

    Args:
        task: what its head is for.
    """
    if task == "image_text_to_text":
        return read_processor(directory, trust_remote_code=trust_remote_code)
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code)
    reset_tokenizer(tokenizer)
    return tokenizer


def _load_full(source: Source, *, model_kwargs: ModelKwargs, device: torch.device, trust: bool) -> PreTrainedModel:
    require_safetensors(source)
    config = read_config(source.directory, trust_remote_code=trust)
    with quiet_transformers():
        model, info = auto_class_of(saved_task(config), config).from_pretrained(
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


def replace_directory(aside: Path, directory: Path) -> None:
    """Renames a directory into the place of an older one.

    Two renames can't be one step: a kill between them leaves the older one aside, and the same command writes it again.
    """
    older = directory.with_name(f".{directory.name}.older")
    shutil.rmtree(older, ignore_errors=True)
    if directory.exists():
        os.replace(directory, older)
    os.replace(aside, directory)
    shutil.rmtree(older, ignore_errors=True)
