"""How a step's rows are split into micro-batches and processes doesn't show in the weights.

A split may be as far from the whole batch as float32's rounding takes it. That is 1e-6 of the way for most models and
much more for a few, so a split that is further away trains again in float64: rounding is gone there, a fault isn't.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

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
ROUGH = 1e-3  # where float64 shows that it is rounding: beyond it, steps in bfloat16 would pass
EXACT = 1e-7  # in float64: norms and softmax of some models stay in float32 there
PROCESSES = 2


def check_splits(bench: Workbench, whole: TaskTrainer, *, unpromised: str = "") -> Iterator[Row]:
    """Compares steps of whole batches with the same rows as halves, one by one, and over two processes.

    Args:
        whole: has trained `bench.sgd` in whole batches.
        unpromised: why none of it can be promised for this config.
    """
    assert whole.module is not None, "it has trained"
    reference, doubles = trained_weights(whole.module), _InDoubles(bench)
    steps = f"{whole.planned_steps} steps of {BATCH} rows"
    for micro in (BATCH // 2, 1):
        yield _judged(
            f"split: {steps} = {BATCH // micro} micro-batches of {micro}",
            apart(_weights(bench, bench.sgd, micro=micro), reference, start=bench.start),
            again=functools.partial(doubles.apart, micro=micro),
            unpromised=unpromised,
        )
    yield _over_processes(bench, whole, reference, doubles=doubles, unpromised=unpromised)


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


class _InDoubles:
    """The same comparisons in float64; the run in whole batches is made when the first is asked for."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def apart(self, *, micro: int) -> float:
        """How far a split into micro-batches is from whole batches."""
        assert self._whole.module is not None, "it has trained"
        reference = trained_weights(self._whole.module)
        weights = _weights(self._bench, self._bench.sgd, micro=micro, in_doubles=True)
        return apart(weights, reference, start=self._bench.start)

    def processes_apart(self) -> float:
        """How far a run over two processes is from whole batches."""
        assert self._whole.module is not None, "it has trained"
        reference = trained_weights(self._whole.module)
        weights = _weights_over_processes(self._bench, self._whole, in_doubles=True)
        return apart(weights, reference, start=self._bench.start)

    @functools.cached_property
    def _whole(self) -> TaskTrainer:
        with self._bench.trained("reference-in-doubles", self._bench.sgd, in_doubles=True) as trainer:
            return trainer


def _judged(check: str, value: float, *, again: Callable[[], float], unpromised: str) -> Row:
    """A row whose figure may be larger than its bound if float64 shows that it is rounding.

    Args:
        again: the figure in float64.
    """
    row = within(check, value, bound=BOUND, unpromised=unpromised)
    if row.verdict != "BREAKS" or not value <= ROUGH:
        return row
    try:
        exact = again()
    except RuntimeError as error:  # no memory for it, or a layer that float64 can't go through
        return dataclasses.replace(row, why=f"float64 can't show whether it is rounding: {str(error).splitlines()[0]}")
    if exact <= EXACT:
        why = f"more than {BOUND:.0e}, by rounding alone: in float64 it is {exact:.1e} (≤ {EXACT:.0e})"
        return within(check, value, bound=ROUGH, why=why)
    return dataclasses.replace(row, why=f"it isn't rounding: in float64 it is {exact:.1e}")


def _over_processes(
    bench: Workbench, whole: TaskTrainer, reference: Weights, *, doubles: _InDoubles, unpromised: str
) -> Row:
    check = f"split: the same over {PROCESSES} processes, {BATCH // PROCESSES} micro-batches of 1 each"
    try:
        if torch.cuda.is_available():  # they compute on CPUs, so what they are compared with does
            with bench.trained_apart("one-process", bench.sgd, processes=1) as run:
                reference = read_weights(whole, run.model)
        weights = _weights_over_processes(bench, whole)
        value = apart(weights, reference, start=bench.start)
        return _judged(check, value, again=doubles.processes_apart, unpromised=unpromised)
    except LaunchError as error:
        return broken(check, str(error.problems[0].what))


def _weights_over_processes(bench: Workbench, whole: TaskTrainer, *, in_doubles: bool = False) -> Weights:
    """
    Args:
        whole: has trained in the same format; its module takes the weights.
    """
    config = with_training_kwargs(bench.sgd, per_device_train_batch_size=1)
    with bench.trained_apart("two-processes", config, processes=PROCESSES, in_doubles=in_doubles) as run:
        return read_weights(whole, run.model)


def _weights(bench: Workbench, config: Config, *, micro: int, in_doubles: bool = False) -> Weights:
    split = with_training_kwargs(config, per_device_train_batch_size=micro)
    with bench.trained(f"micro-{micro}", split, in_doubles=in_doubles) as trainer:
        assert trainer.module is not None, "it has trained"
        return trained_weights(trainer.module)
