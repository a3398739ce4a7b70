"""What of a model will be trained: a line for each group of modules, and each kind of place that an adapter sits on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torch import nn

from supertrainer.models.adapters import adapter_table
from supertrainer.models.quantization import parameter_count
from supertrainer.models.towers import plain_name, sees, tower_of

_LAYER = re.compile(r"(?:^|\.)(?:layers?|h|blocks?)\.(\d+)\.")  # as transformers names the list of a body's layers
_STACKS = ("encoder layers", ": layers")
_COPY_OF_WHOLE = ".original_module."  # PEFT keeps a frozen copy beside a module that it trains whole


@dataclass(frozen=True)
class GroupRow:
    """One line of the table.

    Attributes:
        group: embeddings, encoder layers, pooler, head, adapters, or what else there is; of a model with pictures, each
            within its tower: `vision: layers × 12`.
        parameters: in it.
        trainable: of them trained.
        dtype: the formats that they are held in.
        method: `trained`, `frozen`, or the adapter's kind.
    """

    group: str
    parameters: int
    trainable: int
    dtype: str
    method: str


def group_table(module: nn.Module, *, method: str) -> list[GroupRow]:
    """The groups of a model in the order of its modules, adapters last.

    Args:
        module: with or without an adapter; it may be on the meta device.
        method: full, lora, … as a word for the adapters' line.
    """
    layers: dict[str, set[str]] = {}
    groups: dict[str, list[nn.Parameter]] = {}
    has_towers = sees(module)
    for name, parameter in module.named_parameters():
        plain = plain_name(name)
        group = _group(plain)
        if has_towers and (tower := tower_of(plain)) is not None:
            group = f"{tower}: {_of_tower(group)}"
        if match := _LAYER.search(f".{plain}"):
            layers.setdefault(group, set()).add(match[1])
        groups.setdefault(group, []).append(parameter)
    rows = [
        _row(name, parameters, method=method if _is_adapters(name) else None) for name, parameters in groups.items()
    ]
    rows = [_counted(row, len(layers[row.group])) if row.group.endswith(_STACKS) else row for row in rows]
    return sorted(rows, key=lambda row: _is_adapters(row.group))  # adapters last


def adapted_lines(module: nn.Module) -> list[str]:
    """What an adapter's patterns matched, with counts: `bert: query × 6, value × 6 (36,864 parameters)`."""
    towers: dict[str, list[str]] = {}
    for row in adapter_table(module):
        towers.setdefault(row.tower, []).append(f"{row.name} × {row.count} ({row.parameters:,})")
    return [f"{tower}: {', '.join(parts)}" for tower, parts in towers.items()]


def _of_tower(group: str) -> str:
    return {"encoder layers": "layers", "other": "rest"}.get(group, group)


def _is_adapters(group: str) -> bool:
    return group.endswith("adapters")


def _group(name: str) -> str:
    if "lora_" in name:
        return "adapters"
    if _COPY_OF_WHOLE in f".{name}":
        return "copy of what is trained whole"
    if _LAYER.search(f".{name}"):
        return "encoder layers"
    parts = name.split(".")
    if any("embed" in part for part in parts):
        return "embeddings"
    if "pooler" in parts:
        return "pooler"
    return "head" if _is_head(parts) else "other"


def _is_head(parts: Iterable[str]) -> bool:
    names = ("classifier", "score", "head", "cls", "lm_head", "pre_classifier", "decoder", "vocab_")
    return any(part.startswith(names) for part in parts)


def _row(group: str, parameters: list[nn.Parameter], *, method: str | None = None) -> GroupRow:
    total = sum(parameter_count(parameter) for parameter in parameters)
    trained = sum(parameter_count(parameter) for parameter in parameters if parameter.requires_grad)
    formats = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in parameters})
    word = method or ("frozen" if not trained else "trained" if trained == total else "in part")
    return GroupRow(group, total, trained, ", ".join(formats), word)


def _counted(row: GroupRow, layers: int) -> GroupRow:
    return GroupRow(f"{row.group} × {layers}", row.parameters, row.trainable, row.dtype, row.method)
