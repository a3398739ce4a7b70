"""How the processes of a pretraining share the model: what `trainer.parallel.strategy=auto` comes to. No torch."""

from __future__ import annotations

import math
from typing import Literal

from supertrainer.trainers.pretrain_schema import ParallelConfig

Strategy = Literal["none", "ddp", "fsdp"]

STATE_BYTES = 16  # of a parameter: weight, gradient and AdamW's two moments in float32
SHARE_OF_GPU = 1 / 3  # that they may take before they are divided; the rest is for activations
ASSUMED_GPU_BYTES = 80 * 2**30  # of a GPU that isn't here to be asked: an A100's or H100's
_GIB = 2**30


def choose_strategy(
    parallel: ParallelConfig, *, processes: int, parameters: int, gpu_bytes: int | None
) -> tuple[Strategy, int]:
    """The strategy that a config comes to, and among how many processes each weight is divided (1: it isn't).

    Args:
        parallel: as it is written.
        processes: that train together.
        parameters: of the model.
        gpu_bytes: memory of a GPU; None where there are none.
    """
    if processes == 1:
        return "none", 1
    strategy: Strategy = "ddp"
    if parallel.strategy == "fsdp" or parallel.replicas > 1:
        strategy = "fsdp"
    elif parallel.strategy == "auto" and gpu_bytes is not None:
        strategy = "ddp" if STATE_BYTES * parameters <= SHARE_OF_GPU * gpu_bytes else "fsdp"
    return strategy, processes // parallel.replicas if strategy == "fsdp" else 1


def strategy_in_words(
    parallel: ParallelConfig, *, processes: int, parameters: int, gpu_bytes: int | None, assumed: bool
) -> str:
    """The same for people: the strategy, how the weights are divided, and what `auto` went by.

    Args:
        parallel, processes, parameters, gpu_bytes: as `choose_strategy` takes them.
        assumed: whether nobody could be asked for `gpu_bytes`.
    """
    strategy, divided = choose_strategy(parallel, processes=processes, parameters=parameters, gpu_bytes=gpu_bytes)
    if strategy == "none":
        return "none: one process"
    text = "ddp: every process holds the whole model"
    if strategy == "fsdp":
        text = f"fsdp: every weight is divided among {divided} processes"
        text += f", in {parallel.replicas} groups (HSDP)" if parallel.replicas > 1 else ""
    if parallel.strategy == "auto" and parallel.replicas == 1 and gpu_bytes is not None:
        least = math.ceil(STATE_BYTES * parameters / SHARE_OF_GPU / _GIB)
        on = "a GPU of" if assumed else "GPUs of"
        text += f"; by auto on {on} {gpu_bytes / _GIB:.0f} GiB{', assumed' if assumed else ''}, ddp from {least} GiB on"
    return text
