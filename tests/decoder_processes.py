"""Run by torchrun for test_decoder_processes.py: a decoder of which each process holds a part, and one step of it.

python decoder_processes.py SPECS.json     [{"folder": …, "keys": …}, …]
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from supertrainer.core import distributed
from supertrainer.models.mup import parameter_groups
from tiny_mup import VOCAB, decoder_model, some_tokens

ADAMW: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1, "eps": 1e-8}
ROWS, LENGTH = 4, 33


def rows() -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch; the second row has few targets, and the last none."""
    tokens = some_tokens(ROWS, LENGTH)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
    targets[1, 5:] = -100
    targets[3] = -100
    return inputs, targets


def one_step(decoder: nn.Module, groups: list[dict[str, Any]], *, place: int, places: int) -> None:
    """A step on this process's rows; the loss is divided by the targets of all."""
    inputs, targets = rows()
    count = (targets != -100).sum()
    optimizer = torch.optim.AdamW(groups)
    sums = decoder(inputs[place::places], targets=targets[place::places], z_loss=1e-3)
    ((sums.nll + sums.z_loss) / count).backward()
    optimizer.step()


def sharded(folder: Path, keys: dict[str, Any]) -> None:
    model = decoder_model(**keys)
    decoder = model.build(VOCAB, device="meta")
    for block in decoder.blocks:
        fully_shard(block)
    fully_shard(decoder)
    for module in decoder.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    decoder.to_empty(device="cpu")
    model.initialize(decoder, seed=3, vocab_size=VOCAB)
    write(folder / "start.safetensors", decoder)
    groups = parameter_groups(decoder, model.table(VOCAB), **ADAMW)
    one_step(decoder, groups, place=distributed.rank(), places=distributed.world_size())
    write(folder / "after.safetensors", decoder)
    dcp.save({"model": dict(decoder.named_parameters())}, checkpoint_id=folder / "step")


def write(path: Path, decoder: nn.Module) -> None:
    whole = {name: parameter.full_tensor().contiguous() for name, parameter in decoder.named_parameters()}
    if distributed.is_main():
        save_file(whole, path)


if __name__ == "__main__":
    warnings.filterwarnings("error")
    torch.set_num_threads(1)
    distributed.initialize("cpu")
    for spec in json.loads(Path(sys.argv[1]).read_text()):
        sharded(Path(spec["folder"]), spec["keys"])
    distributed.shutdown()
