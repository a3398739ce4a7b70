"""From a distributed checkpoint to a plain Hugging Face directory, and back; nothing in it can run code.

A step directory holds `model.<parameter>` and `optimizer.…` in torch's distributed format: tensors in pieces, wherever
they were sharded, and one pickled `.metadata` that says where each piece lies.
"""

from __future__ import annotations

import contextlib
import pickle
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import IO, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from transformers import GenerationConfig, PreTrainedTokenizerBase

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.core.files import fsync_path, read_json, write_json
from supertrainer.models.llama_format import Form, to_llama
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.saving import replace_directory
from supertrainer.models.tokenizers import save_tokenizer

METADATA = ".metadata"
MODEL_KEY = "model"
SHARD_SIZE = "5GB"

_CHECKPOINT = "torch.distributed.checkpoint"
_ALLOWED = {
    f"{_CHECKPOINT}.metadata": {
        "Metadata", "MetadataIndex", "StorageMeta", "ChunkStorageMetadata", "TensorProperties",
        "TensorStorageMetadata", "BytesStorageMetadata", "_MEM_FORMAT_ENCODING",
    },
    f"{_CHECKPOINT}.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
    "pathlib._local": {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"},
    "collections": {"OrderedDict"},
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    """Makes what `.metadata` consists of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(vars(torch).get(name), torch.dtype | torch.layout):
            return vars(torch)[name]
        if (module, name) == ("torch", "Size"):
            return torch.Size
        if name not in _ALLOWED.get(module, ()):
            raise CheckpointError(
                f"{METADATA} names {module}.{name}, which is no part of a checkpoint.",
                why="unpickling it would run its code.",
                fix="use the checkpoint as your own run wrote it, and none from elsewhere.",
            )
        return super().find_class(module, name)


class AllowListedReader(dcp.FileSystemReader):
    """Reads a distributed checkpoint without unpickling what isn't one."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """
        Raises:
            CheckpointError: `.metadata` isn't there, is broken, or names other classes or files than a checkpoint's.
        """
        path = Path(self.path) / METADATA
        try:
            with path.open("rb") as file:
                metadata = _unpickled(file)
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
            raise CheckpointError(
                f"{path} can't be read: {error}.",
                why="it says where each weight lies.",
                fix="name a complete step directory.",
            ) from error
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def read_dcp(step_directory: Path) -> dict[str, Tensor]:
    """The whole weights of a step directory, by the decoder's parameter names, on the CPU.

    Raises:
        CheckpointError: it isn't a distributed checkpoint, or holds no model.
    """
    reader = AllowListedReader(step_directory)
    prefix = f"{MODEL_KEY}."
    entries = reader.read_metadata().state_dict_metadata
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in entries.items()
        if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }
    if not state:
        raise CheckpointError(
            f"{step_directory} holds no weights of a model.",
            why=f"it has {', '.join(sorted({name.partition('.')[0] for name in entries})) or 'nothing'}.",
            fix="name a step directory of a pretraining run.",
        )
    with _alone():
        dcp.load(state, storage_reader=reader, no_dist=True)
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def write_dcp(directory: Path, *, state: Mapping[str, Tensor]) -> None:
    """Writes weights by the decoder's parameter names into an existing directory, as `read_dcp` reads them."""
    with _alone():
        dcp.save(
            {MODEL_KEY: {name: tensor.contiguous() for name, tensor in state.items()}},
            storage_writer=dcp.FileSystemWriter(directory),
            no_dist=True,
        )


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
    from huggingface_hub import save_torch_state_dict

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


def _unpickled(file: IO[bytes]) -> Metadata:
    metadata = _Unpickler(file).load()
    if not isinstance(metadata, Metadata):
        raise ValueError(f"it holds a {type(metadata).__name__}")
    for stored in (metadata.storage_data or {}).values():
        place = PurePath(stored.relative_path)
        if place.is_absolute() or ".." in place.parts:
            raise ValueError(f"it names {place}, outside its directory")
    return metadata


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Without torch's word that a process without others reads and writes alone: it is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield
