"""What a source's weight files say of themselves: names, formats and shapes, read from their headers alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.models.sources import Source, require_safetensors

_BYTES_OF_LENGTH = 8  # a safetensors file begins with the length of its header
_MOST_HEADER_BYTES = 100_000_000  # as the format's own reader allows
_OLD_NAMES = (("gamma", "weight"), ("beta", "bias"))  # of layer norms, in checkpoints from 2018


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, by its header."""

    file: str
    dtype: str
    shape: tuple[int, ...]


def stored_tensors(source: Source) -> dict[str, StoredTensor]:
    """The tensors of a source by name.

    Raises:
        ConfigError: there are no safetensors files, or one is cut off or damaged, or an index names one that is absent.
    """
    require_safetensors(source)
    problems: list[Problem] = []
    tensors: dict[str, StoredTensor] = {}
    for file in sorted(source.directory.glob("*.safetensors")):
        try:
            tensors |= _header(file)
        except (ValueError, KeyError, TypeError, OSError) as error:
            problems.append(
                Problem(
                    f"{file} can't be read: {error}.",
                    why="the file is cut off or damaged.",
                    fix="copy the model again from where it came.",
                )
            )
    for index in source.directory.glob("*.safetensors.index.json"):
        named = set(json.loads(index.read_text(encoding="utf-8")).get("weight_map", {}).values())
        absent = sorted(name for name in named if not (index.parent / name).is_file())
        if absent:
            what = f"{index} names {', '.join(absent[:3])}, which {'is' if len(absent) == 1 else 'are'} not there."
            problems.append(Problem(what, fix="copy the model again, whole."))
    raise_all(ConfigError, problems)
    return tensors


def shape_problems(
    tensors: Mapping[str, StoredTensor], module: nn.Module, *, free: frozenset[str], source: Source, tokens: int
) -> list[Problem]:
    """The weights that can't be read into a model since their shapes differ.

    Args:
        tensors: of the source.
        module: what they would be read into, without an adapter.
        free: parameters that may differ: those with a row for every class.
        source: for the message.
        tokens: of the tokenizer: where it has more than the source, rows are added.
    """
    stored = {_new_name(name): tensor for name, tensor in tensors.items()}
    wrong = []
    for name, parameter in module.named_parameters():
        held = stored.get(name) or next((stored[tail] for tail in _tails(name) if tail in stored), None)
        if held is None or name in free or held.shape == tuple(parameter.shape):
            continue
        if not held.shape[:1] < tuple(parameter.shape[:1]) == (tokens,):
            wrong.append(f"{name}: {_shown(held.shape)} there, {_shown(parameter.shape)} by the config")
    if not wrong:
        return []
    return [
        Problem(
            f"model.source={source.reference}: {len(wrong)} weights aren't of the shape in the config: {wrong[0]}.",
            why="weights of another shape can't be used, and random ones would take their place.",
            fix="leave sizes out of model.config_overrides, or build an untrained model with model.config.",
        )
    ]


def _header(file: Path) -> dict[str, StoredTensor]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(_BYTES_OF_LENGTH), "little")
        if size < _BYTES_OF_LENGTH or length > min(size - _BYTES_OF_LENGTH, _MOST_HEADER_BYTES):
            raise ValueError(f"its header would be {length} bytes long, the file has {size}")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    end = max((entry["data_offsets"][1] for entry in header.values()), default=0)
    if _BYTES_OF_LENGTH + length + end != size:
        raise ValueError(f"it should have {_BYTES_OF_LENGTH + length + end} bytes and has {size}")
    return {name: StoredTensor(file.name, entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}


def _new_name(name: str) -> str:
    for old, new in _OLD_NAMES:
        if name.endswith(f".{old}"):
            return name.removesuffix(old) + new
    return name


def _tails(name: str) -> list[str]:
    """A parameter's name without the body's prefix: a checkpoint of the body alone has none."""
    parts = name.split(".")
    return [".".join(parts[1:])] if len(parts) > 2 else []


def _shown(shape: tuple[int, ...]) -> str:
    return f"{' × '.join(map(str, shape))} ({math.prod(shape):,})"
