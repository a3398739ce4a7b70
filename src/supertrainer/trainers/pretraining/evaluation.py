"""The validation loss: the same rows for any number of processes, summed over all of them."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from supertrainer.core.distributed import all_reduce_sum, rank, world_size
from supertrainer.trainers.pretraining.batches import micro_batches
from supertrainer.trainers.pretraining.layout import Layout


def evaluate(decoder: nn.Module, rows: Any, *, layout: Layout, micro_batch_rows: int) -> dict[str, float]:
    """Mean loss of the predicted tokens, and its perplexity. Every process calls it with the same rows.

    Args:
        decoder: what is trained.
        rows: of `StreamDataset.validation`.
        layout: of the processes.
        micro_batch_rows: rows that a process computes at once.
    """
    parts, valid = micro_batches(rows, micro_batch_rows, device=layout.device)
    rounds = math.ceil(len(parts) / world_size())  # weights that are divided are put together by all, each round
    total = torch.zeros((), dtype=torch.float64, device=layout.device)
    with layout.looking(decoder):
        for number in range(rounds):
            mine = number * world_size() + rank()
            part = parts[mine] if mine < len(parts) else parts[-1]
            nll = decoder(part.inputs, targets=part.targets, documents=part.documents).nll
            if mine < len(parts):
                total += nll
    loss = all_reduce_sum(total).item() / max(valid, 1)
    return {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
