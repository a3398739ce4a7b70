"""AdamW with the groups of the model's table, its state made at once, and everything by name for checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig


def build_optimizer(groups: Sequence[Mapping[str, Any]], config: PretrainTrainerConfig) -> AdamW:
    """Makes AdamW in its fused form, with moments of zeros as it would make them in its first step.

    Args:
        groups: of the model's table: params, lr, initial_lr, weight_decay, eps.
        config: betas.
    """
    optimizer = AdamW([dict(group) for group in groups], betas=config.betas, fused=True)
    for parameter in _parameters(optimizer):
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
            "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
        }
    return optimizer


def set_rates(optimizer: AdamW, share: float) -> None:
    """Gives every group its rate for the next update.

    A rate isn't read from a checkpoint: it follows from the config and the update's number, in every group.

    Args:
        optimizer: whose groups know their peak as `initial_lr`.
        share: of the peak.
    """
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * share


def training_state(decoder: nn.Module, optimizer: AdamW) -> dict[str, dict[str, Tensor]]:
    """The tensors themselves, by name, as a checkpoint holds them: weights, and what AdamW knows of each."""
    model = {name: parameter.detach() for name, parameter in decoder.named_parameters()}
    moments = {
        f"state.{name}.{kind}": value
        for name, parameter in decoder.named_parameters()
        for kind, value in optimizer.state[parameter].items()
    }
    return {"model": model, "optimizer": moments}


def _parameters(optimizer: AdamW) -> Iterator[nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
