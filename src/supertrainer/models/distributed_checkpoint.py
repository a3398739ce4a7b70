"""Weights in torch's distributed format: read without running what a file says, written by a single process.

A step directory holds `model.<parameter>` and `optimizer.…`: tensors in pieces, wherever they were sharded, and one
pickled `.metadata` that says where each piece lies.
"""

from __future__ import annotations

import contextlib
import enum
import pickle
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import IO, Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata

from supertrainer.core.errors import CheckpointError

METADATA = ".metadata"
MODEL_KEY = "model"
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
        if (module, name) == ("builtins", "getattr"):
            return _member
        if name not in _ALLOWED.get(module, ()):
            raise CheckpointError(
                f"{METADATA} names {module}.{name}, which is no part of a checkpoint.",
                why="unpickling it would run its code.",
                fix="use the checkpoint as your own run wrote it, and none from elsewhere.",
            )
        return super().find_class(module, name)


def _member(choices: Any, name: str) -> enum.Enum:
    """A member of an enumeration, which Python before 3.11.4 pickles as an attribute of its class."""
    if not (isinstance(choices, type) and issubclass(choices, enum.Enum)):
        raise CheckpointError(
            f"{METADATA} names {name!r} of {choices!r}, which is no part of a checkpoint.",
            why="unpickling it could run its code.",
            fix="use the checkpoint as your own run wrote it, and none from elsewhere.",
        )
    return choices[name]


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
    prefix = f"{MODEL_KEY}."
    state = read_tensors(step_directory, prefix=prefix)
    if not state:
        entries = AllowListedReader(step_directory).read_metadata().state_dict_metadata
        raise CheckpointError(
            f"{step_directory} holds no weights of a model.",
            why=f"it has {', '.join(sorted({name.partition('.')[0] for name in entries})) or 'nothing'}.",
            fix="name a step directory of a pretraining run.",
        )
    return {name.removeprefix(prefix): tensor for name, tensor in state.items()}


def read_tensors(step_directory: Path, *, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a step directory whose names begin so, whole and on the CPU: `model.…`, `optimizer.state.…`.

    Raises:
        CheckpointError: it isn't a distributed checkpoint.
    """
    reader = AllowListedReader(step_directory)
    state = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in reader.read_metadata().state_dict_metadata.items()
        if name.startswith(prefix) and isinstance(entry, TensorStorageMetadata)
    }
    try:
        with lone_process_is_meant():
            dcp.load(state, storage_reader=reader, no_dist=True)
    except CheckpointException as error:
        _, (reason, _) = min(error.failures.items())
        raise CheckpointError(
            f"{step_directory} can't be read: {type(reason).__name__}: {reason}.",
            why="its files aren't those that its .metadata speaks of, or are cut off.",
            fix="name another step directory, or restore its files from a copy.",
        ) from error
    return state


def write_dcp(directory: Path, *, state: Mapping[str, Tensor]) -> None:
    """Writes weights by the decoder's parameter names into an existing directory, as `read_dcp` reads them."""
    with lone_process_is_meant():
        dcp.save(
            {MODEL_KEY: {name: tensor.contiguous() for name, tensor in state.items()}},
            storage_writer=dcp.FileSystemWriter(directory),
            no_dist=True,
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
def lone_process_is_meant() -> Iterator[None]:
    """Inside, torch doesn't warn that a process without others reads or writes a checkpoint alone."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)
        yield
