"""A run that was stopped and started again is the run that never was, to the bit; the same seed gives the same run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from supertrainer.operations.verification.reduction import in_random_order, with_training_kwargs
from supertrainer.operations.verification.rows import Row, other_bits, same_bits
from supertrainer.operations.verification.workbench import Weights, Workbench, differing, trained_weights
from supertrainer.trainers.base import TaskTrainer

EPOCHS = 2


def check_resumes(bench: Workbench) -> Iterator[Row]:
    """Compares two epochs without a stop with the same stopped in the first, and again in the second; then with the
    same seed again, and with another one. All with the config's own dropout, optimizer, schedule and evaluations.

    A stop is what a kill after a checkpoint leaves: its directory alone is carried into a run that knows nothing else.
    """
    config = with_training_kwargs(in_random_order(bench.config), num_train_epochs=EPOCHS)
    epoch = bench.untrained[0].planned_steps
    steps, first = EPOCHS * epoch, max(epoch - 1, 1)  # the last but one step of the first epoch
    second = first * (epoch // first + 1)  # the next save that falls into the second
    saving = with_training_kwargs(config, save_strategy="steps", save_steps=first)
    with bench.trained("whole", saving) as whole:
        expected = _state(whole)
        newest = whole.store.directory / f"step-{first:08d}"
        with bench.trained("resumed", saving, checkpoint=newest) as resumed:
            yield _same(f"resume: {steps} steps = {first} + {steps - first}", resumed, expected)
            newest = resumed.store.directory / f"step-{second:08d}"
            with bench.trained("resumed-again", saving, checkpoint=newest) as again:
                check = f"resume: stopped again in epoch 2, {first} + {second - first} + {steps - second}"
                yield _same(check, again, expected)
    with bench.trained("same-seed", config) as same:
        yield _same("seed: the same twice", same, expected)
    with bench.trained("other-seed", config, seed=config.run.seed + 1) as other:
        yield other_bits("seed: another one", *differing(_weights(other), _only_weights(expected)))


def _same(check: str, trainer: TaskTrainer, expected: Weights) -> Row:
    return same_bits(check, *differing(_state(trainer), expected))


def _state(trainer: TaskTrainer) -> Weights:
    """Trained weights and the optimizer's state: everything that a further step would start from."""
    newest = trainer.store.find_latest()
    assert newest is not None, "the last step is always saved"
    optimizer = torch.load(newest.path / "optimizer.pt", map_location="cpu", weights_only=True)
    return _weights(trainer) | dict(_tensors(optimizer["state"], "optimizer"))


def _weights(trainer: TaskTrainer) -> Weights:
    assert trainer.module is not None, "it has trained"
    return trained_weights(trainer.module)


def _only_weights(state: Weights) -> Weights:
    return {name: tensor for name, tensor in state.items() if not name.startswith("optimizer/")}


def _tensors(value: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(item, f"{name}/{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _tensors(item, f"{name}/{index}")
