"""How a step's rows are split into micro-batches and processes doesn't show in the weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from supertrainer.config.spine import Config
from supertrainer.core.errors import LaunchError
from supertrainer.operations.verification.reduction import BATCH, at_constant_rate, with_training_kwargs
from supertrainer.operations.verification.rows import Row, broken, within
from supertrainer.operations.verification.workbench import (
    Weights,
    Workbench,
    apart,
    read_weights,
    trained_weights,
)
from supertrainer.trainers.base import TaskTrainer

BOUND = 1e-5  # of the way that the weights went
PROCESSES = 2


def check_splits(bench: Workbench, whole: TaskTrainer, *, unpromised: str = "") -> Iterator[Row]:
    """Compares steps of whole batches with the same rows as halves, one by one, and over two processes.

    Args:
        whole: has trained `bench.sgd` in whole batches.
        unpromised: why none of it can be promised for this config.
    """
    assert whole.module is not None, "it has trained"
    reference = trained_weights(whole.module)
    steps = f"{whole.planned_steps} steps of {BATCH} rows"
    for micro in (BATCH // 2, 1):
        weights = _weights(bench, bench.sgd, micro=micro)
        yield within(
            f"split: {steps} = {BATCH // micro} micro-batches of {micro}",
            apart(weights, reference, start=bench.start),
            bound=BOUND,
            unpromised=unpromised,
        )
    yield _over_processes(bench, whole, reference, unpromised=unpromised)


def check_own_optimizer(bench: Workbench) -> Iterator[Row]:
    """Shows what the split comes to with the config's own optimizer."""
    config = at_constant_rate(bench.still)
    name = str(config.trainer.training_kwargs.get("optim", "adamw_torch_fused"))
    if name == "sgd":
        return
    whole, single = (_weights(bench, config, micro=micro) for micro in (BATCH, 1))
    why = (
        "it divides a gradient by its size, so where that is rounding noise, as of attention's key biases, noise shows"
    )
    if "8bit" in name:
        why = "its states are rounded to 8 bits"
    yield within(
        f"split: the same with {name}, {BATCH} micro-batches of 1",
        apart(single, whole, start=bench.start),
        bound=BOUND,
        unpromised=why,
    )


def _over_processes(bench: Workbench, whole: TaskTrainer, reference: Weights, *, unpromised: str) -> Row:
    check = f"split: the same over {PROCESSES} processes, {BATCH // PROCESSES} micro-batches of 1 each"
    try:
        if torch.cuda.is_available():  # they compute on CPUs, so what they are compared with does
            with bench.trained_apart("one-process", bench.sgd, processes=1) as run:
                reference = read_weights(whole, run.model)
        config = with_training_kwargs(bench.sgd, per_device_train_batch_size=1)
        with bench.trained_apart("two-processes", config, processes=PROCESSES) as run:
            weights = read_weights(whole, run.model)
    except LaunchError as error:
        return broken(check, str(error.problems[0].what))
    return within(check, apart(weights, reference, start=bench.start), bound=BOUND, unpromised=unpromised)


def _weights(bench: Workbench, config: Config, *, micro: int) -> Weights:
    split = with_training_kwargs(config, per_device_train_batch_size=micro)
    with bench.trained(f"micro-{micro}", split) as trainer:
        assert trainer.module is not None, "it has trained"
        return trained_weights(trainer.module)
