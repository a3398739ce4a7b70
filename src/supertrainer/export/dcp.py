"""From a distributed checkpoint to a plain Hugging Face directory that every engine serves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor
from transformers import GenerationConfig, PreTrainedTokenizerBase

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import fsync_path, read_json, write_json
from supertrainer.models.distributed_checkpoint import AllowListedReader, read_dcp, write_dcp
from supertrainer.models.llama_format import Form, to_llama
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.saving import replace_directory
from supertrainer.models.tokenizers import save_tokenizer

__all__ = ["AllowListedReader", "read_dcp", "write_dcp", "write_hf"]

SHARD_SIZE = "5GB"


def write_hf(
    directory: Path,
    *,
    model: DecoderModel,
    vocab_size: int,
    state: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase,
    dtype: str = "float32",
    form: Form = "llama",
) -> None:
    """Writes a complete directory that plain transformers loads; an older one is replaced.

    Args:
        directory: made aside and renamed into place.
        vocab_size: of the tokenizer that the model was built for.
        state: whole weights by the decoder's parameter names.
        dtype: of the weights as written; multipliers are folded in float32 before.
        form: `models.llama_format.to_llama`'s.

    Raises:
        ConfigError: names or shapes of the state aren't the model's.
        OSError: the disk is full or not writable; what was there before is intact.
    """
    table = model.table(vocab_size)
    _require_whole(state, {name: rule.shape for name, rule in table.rules.items()})
    whole = {name: state[name].detach().to("cpu", torch.float32) for name in table.rules}
    config, weights = to_llama(model.shape(vocab_size), table, whole, form=form)
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    aside = directory.with_name(f".{directory.name}.incoming")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        written = {name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in weights.items()}
        save_torch_state_dict(written, aside, max_shard_size=SHARD_SIZE, metadata={"format": "pt"})
        write_json(aside / "config.json", {**config, **special, "dtype": dtype, "torch_dtype": dtype})
        GenerationConfig(**special).save_pretrained(aside)
        _write_tokenizer(tokenizer, aside, max_length=model.shape(vocab_size).max_length)
        for file in aside.iterdir():
            fsync_path(file)
        replace_directory(aside, directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    fsync_path(directory.parent)


def _write_tokenizer(tokenizer: PreTrainedTokenizerBase, directory: Path, *, max_length: int) -> None:
    save_tokenizer(tokenizer, directory)
    file = directory / "tokenizer_config.json"
    said = read_json(file)
    if said.get("tokenizer_class") == "TokenizersBackend":
        said["tokenizer_class"] = "PreTrainedTokenizerFast"  # by this name transformers 4 finds it too
    write_json(file, {**said, "model_max_length": max_length})


def _require_whole(state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    wrong = [
        f"{name}: {tuple(state[name].shape) if name in state else 'nothing'} there, {shape} by the config"
        for name, shape in shapes.items()
        if name not in state or tuple(state[name].shape) != shape
    ]
    wrong += [f"{name}: not in a model of this config" for name in state if name not in shapes]
    if wrong:
        raise ConfigError(
            f"{len(wrong)} weights aren't those of the model: {wrong[0]}.",
            why="the config is another than the weights were trained under.",
            fix="give the config and the tokenizer of the run that made them.",
        )
