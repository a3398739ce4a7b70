"""LoRA+: another learning rate for an adapter's B matrices."""

from __future__ import annotations

import logging

from torch import nn
from torch.optim import Optimizer

log = logging.getLogger(__name__)
_B_MATRICES = (".lora_B.", ".lora_embedding_B.")


def faster_b(optimizer: Optimizer, module: nn.Module, *, ratio: float) -> None:
    """Moves the B matrices of every group into a group of their own, with `ratio` times its rate.

    To be called before a schedule reads the rates, which it keeps as multiples of themselves.
    Source: Hayou et al. 2024, "LoRA+: Efficient Low Rank Adaptation of Large Models".

    Args:
        optimizer: without state yet.
        module: has the adapter.
        ratio: B's rate as a multiple of A's.
    """
    faster = {id(p) for name, p in module.named_parameters() if any(part in name for part in _B_MATRICES)}
    moved = 0
    for group in list(optimizer.param_groups):
        chosen = [parameter for parameter in group["params"] if id(parameter) in faster]
        if not chosen:
            continue
        moved += len(chosen)
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in faster]
        optimizer.add_param_group({**group, "params": chosen, "lr": group["lr"] * ratio})
    log.info("LoRA+: %d B matrices learn %g times as fast", moved, ratio)
