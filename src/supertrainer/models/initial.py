"""Adapters that begin inside the frozen weights: PiSSA (Meng et al. 2024) and OLoRA (Büyükakyüz 2024).

Such an adapter starts as a part B₀A₀ of each weight W, which is taken out of it: what is trained is W − sB₀A₀ + sBA.
The start is kept, so that what is saved can be a plain LoRA on W as its source has it: [A; A₀] and [B, −B₀], twice the
rank. Where the rest of W is quantized, the rest is kept instead, and the adapter as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from supertrainer.core.errors import CheckpointError
from supertrainer.core.files import read_json, write_json
from supertrainer.models.methods import INIT

START_FILE = "initial_adapter.safetensors"  # beside the adapter in a checkpoint: A₀ and B₀ of every layer
_START = "supertrainer_start"  # the PeftModel's attribute
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"

Start = Mapping[str, tuple[Tensor, Tensor]]
"""A₀ and B₀ by the layer's full name."""


def keep_start(adapted: nn.Module) -> None:
    """Remembers how the adapter begins."""
    vars(adapted)[_START] = {
        name: (_weight(layer, "A").detach().clone(), _weight(layer, "B").detach().clone())
        for name, layer in _layers(adapted)
    }


def start_of(adapted: nn.Module) -> Start | None:
    """How the adapter began; None where it began beside the frozen weights."""
    found: Start | None = vars(adapted).get(_START)
    return found


def put_start(adapted: nn.Module, start: Start) -> None:
    """Makes an adapter begin as another did."""
    with torch.no_grad():
        for name, layer in _layers(adapted):
            for part, values in zip("AB", start[name], strict=True):
                weight = _weight(layer, part)
                weight.copy_(values.to(weight))
    vars(adapted)[_START] = start


def write_start(adapted: nn.Module, directory: Path) -> None:
    """Writes how the adapter began beside it, where that is needed to read it."""
    from safetensors.torch import save_file

    if (start := start_of(adapted)) is not None:
        tensors = {
            f"{name}.{part}": values.cpu().contiguous()
            for name, both in start.items()
            for part, values in zip("AB", both, strict=True)
        }
        save_file(tensors, directory / START_FILE)


def restore_start(adapted: nn.Module, directory: Path) -> None:
    """Makes a model whose adapter begins inside its frozen weights begin as the one did that wrote a checkpoint.

    On the same machine it does so already, to the bit. Elsewhere the decomposition may be rounded otherwise.

    Raises:
        CheckpointError: the weights are quantized, so that what was taken out of them can't be put back.
    """
    from safetensors.torch import load_file

    own, file = start_of(adapted), directory / START_FILE
    if own is None or not file.is_file():
        return
    kept = load_file(file)
    start = {name: (kept[f"{name}.A"], kept[f"{name}.B"]) for name in own}
    for name, layer in _layers(adapted):
        (a, b), (kept_a, kept_b) = own[name], (values.to(own[name][0]) for values in start[name])
        if torch.equal(a, kept_a) and torch.equal(b, kept_b):
            continue
        weight = layer.get_base_layer().weight
        if not weight.is_floating_point():
            raise CheckpointError(
                f"{directory} was written where the adapter began otherwise than it does here.",
                why="PiSSA and OLoRA decompose the weights, which another machine rounds otherwise, and their rest "
                "is quantized.",
                fix="go on where the run was started, or run.fresh=true.",
            )
        taken = layer.scaling["default"] * (b.float() @ a.float() - kept_b.float() @ kept_a.float())
        with torch.no_grad():
            weight += (taken.T if layer.fan_in_fan_out else taken).to(weight)
    vars(adapted)[_START] = {name: tuple(v.to(own[name][0]) for v in both) for name, both in start.items()}


def write_plain(adapted: nn.Module, directory: Path) -> None:
    """Rewrites an adapter's files so that they belong on the weights as they were before it began."""
    from safetensors.torch import load_file, save_file

    start = start_of(adapted)
    if start is None:
        return
    tensors = load_file(directory / _WEIGHTS)
    for name, (a, b) in start.items():
        key_a, key_b = f"{name}.lora_A.weight", f"{name}.lora_B.weight"
        tensors[key_a] = torch.cat([tensors[key_a], a.to(tensors[key_a])])
        tensors[key_b] = torch.cat([tensors[key_b], -b.to(tensors[key_b])], dim=1)
    save_file(tensors, directory / _WEIGHTS, metadata={"format": "pt"})
    write_json(directory / _CONFIG, _doubled(read_json(directory / _CONFIG)))


def _doubled(config: dict[str, Any]) -> dict[str, Any]:
    """The config of twice the rank at the same scale, which is alpha over the rank, or over its root (rsLoRA)."""
    factor = 2**0.5 if config["use_rslora"] else 2
    config["r"], config["lora_alpha"] = 2 * config["r"], factor * config["lora_alpha"]
    config["rank_pattern"] = {name: 2 * rank for name, rank in (config["rank_pattern"] or {}).items()}
    config["alpha_pattern"] = {name: factor * alpha for name, alpha in (config["alpha_pattern"] or {}).items()}
    config[INIT] = True
    return config


def _layers(adapted: nn.Module) -> list[tuple[str, Any]]:
    from peft.tuners.lora import LoraLayer

    return [(name, layer) for name, layer in adapted.named_modules() if isinstance(layer, LoraLayer) and layer.lora_A]


def _weight(layer: Any, part: str) -> nn.Parameter:
    weight: nn.Parameter = (layer.lora_A if part == "A" else layer.lora_B)["default"].weight
    return weight
