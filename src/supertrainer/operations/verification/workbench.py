"""Training a config aside, as often as the checks ask for it, and what is left of each run in numbers."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.errors import DataError
from supertrainer.core.job import StopRequested, has_waiting_script
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.scoring import build_dataset, build_trainer
from supertrainer.operations.verification.doubles import compute_in_doubles
from supertrainer.operations.verification.padding import forward, padded_batch
from supertrainer.operations.verification.processes import train_apart
from supertrainer.operations.verification.reduction import (
    BATCH,
    TRAIN_ROWS,
    reduced,
    with_sgd,
    with_train_limit,
    without_dropout,
)
from supertrainer.trainers.base import TaskTrainer
from supertrainer.trainers.checkpointing import load_weights

Weights = dict[str, Tensor]

STEP_LENGTH = 0.1  # of all weights together: float32 can hold it, and training doesn't go astray
LEAST_NORM = 0.1  # gradients that begin smaller may grow, and then the step would be too long
LEAST_SHARE = 1e-3  # of the weights; what moves less is lost among the last bits of float32


class Workbench:
    """A config, reduced; and runs of it in a directory that is removed afterwards.

    Attributes:
        config: on a few rows, in float32, otherwise as it is: its dropout, optimizer and schedule.
        still: the same without dropout.
        dataset: the rows of both.
    """

    def __init__(self, config: Config, *, directory: Path) -> None:
        """
        Raises:
            ConfigError: what can't be trained as configured.
            DataError: faulty rows, or too few of them.
        """
        self.config = reduced(config)
        self.directory = directory
        self.dataset: Any = build_dataset(self.config)
        model = build(self.config.model, allowed=self.config.allow_targets)
        self.still = without_dropout(self.config, model.architecture(self.dataset.label_names))
        self._take_more(config.dataset.limits.train)
        texts, rows = len(self.dataset.load()["train"]), self.untrained[0].train_rows
        if rows > TRAIN_ROWS:  # windows of long texts: a few of the texts have as many
            self._take_fewer(max(TRAIN_ROWS * texts // rows, 1))
            rows = self.untrained[0].train_rows
        if rows <= BATCH:
            raise DataError(
                f"operation=verify needs {BATCH + 1} training rows, and there are {rows}.",
                why=f"it trains in steps of {BATCH} rows, and one of them must be short.",
                fix="give more rows.",
            )

    @functools.cached_property
    def start(self) -> Weights:
        """The weights that training starts from."""
        return trained_weights(self.untrained[1])

    @functools.cached_property
    def sgd(self) -> Config:
        """The config without dropout, with plain SGD at a rate that makes steps of a length that tells."""
        trainer, module = self.untrained
        clipped = float(trainer.config.training_kwargs.get("max_grad_norm", 1.0)) or 1.0
        step = min(_gradient_norm(trainer, module), clipped, 1.0)
        return with_sgd(self.still, learning_rate=STEP_LENGTH / max(step, LEAST_NORM))

    @contextmanager
    def trained(
        self,
        name: str,
        config: Config,
        *,
        seed: int | None = None,
        checkpoint: Path | None = None,
        in_doubles: bool = False,
    ) -> Iterator[TaskTrainer]:
        """Trains a config in this process; its files are there while the context is open.

        Args:
            name: of its directory.
            seed: another one than the config's.
            checkpoint: a step directory of another run, which is moved into this one to go on from.
            in_doubles: in float64, from the same weights.
        """
        run = RunDirectory(self.directory / name)
        run.create()
        if checkpoint is not None:
            run.checkpoints.mkdir()
            os.replace(checkpoint, run.checkpoints / checkpoint.name)
        trainer = build_trainer(config, run, dataset=self.dataset, seed=seed)
        if in_doubles:
            compute_in_doubles(trainer)
        try:
            require_whole(trainer.train().stopped_by)
            yield trainer
        finally:
            shutil.rmtree(run.path, ignore_errors=True)

    @contextmanager
    def trained_apart(
        self, name: str, config: Config, *, processes: int, in_doubles: bool = False
    ) -> Iterator[RunDirectory]:
        """Trains a config in processes of its own, on CPUs, connected by gloo.

        Args:
            in_doubles: in float64, from the same weights.

        Raises:
            LaunchError: they failed.
        """
        run = RunDirectory(self.directory / name)
        run.create()
        try:
            logs = self.directory.parent / "logs"
            train_apart(config, run, processes=processes, logs=logs, in_doubles=in_doubles)
            yield run
        finally:
            shutil.rmtree(run.path, ignore_errors=True)

    def _take_more(self, limit: int | None) -> None:
        """Reads more texts for as long as they make too few rows, as packs of them do.

        Args:
            limit: of the config that is verified.
        """
        texts = TRAIN_ROWS
        while self.untrained[0].train_rows <= BATCH and len(self.dataset.load()["train"]) == texts != limit:
            texts = min(4 * texts, limit or 4 * texts)
            self._take(texts)

    def _take_fewer(self, texts: int) -> None:
        """Reads that many training rows, or as many more as it takes to have a step and a short one."""
        for count in range(texts, len(self.dataset.load()["train"]) + 1):
            self._take(count)
            if self.untrained[0].train_rows > BATCH:
                return

    def _take(self, texts: int) -> None:
        self.config, self.still = (with_train_limit(config, texts) for config in (self.config, self.still))
        self.dataset = build_dataset(self.config)
        del self.untrained

    @functools.cached_property
    def untrained(self) -> tuple[TaskTrainer, nn.Module]:
        """A trainer that hasn't trained, and the model that it would start from, without dropout."""
        trainer = build_trainer(self.still, RunDirectory(self.directory / "untrained"), dataset=self.dataset)
        return trainer, trainer.build_module()


def require_whole(stopped_by: str | None) -> None:
    """Ends a verification one of whose trainings was stopped by a signal: nothing of it is worth saving.

    Raises:
        StopRequested, KeyboardInterrupt: it was.
    """
    if stopped_by is not None:
        raise StopRequested(stopped_by) if has_waiting_script() else KeyboardInterrupt


def trained_weights(module: nn.Module) -> Weights:
    """Copies of the weights that are trained, by name, on the CPU."""
    return {name: p.detach().cpu().clone() for name, p in module.named_parameters() if p.requires_grad}


def read_weights(trainer: TaskTrainer, directory: Path) -> Weights:
    """The trained weights in a directory that a run of the same config wrote. The trainer's own module takes them."""
    assert trainer.module is not None, "it has trained"
    load_weights(trainer.module, directory)
    return trained_weights(trainer.module)


def apart(one: Weights, other: Weights, *, start: Weights) -> float:
    """How far two runs are apart, as a share of how far they moved, over all weights; NaN where nothing moved.

    Where they hardly moved, of a thousandth of the weights' length.
    """
    assert one.keys() == other.keys() == start.keys()
    distance = sum(float((one[name] - other[name]).double().square().sum()) for name in one)
    moved = sum(float((one[name] - start[name]).double().square().sum()) for name in one)
    least = LEAST_SHARE**2 * sum(float(tensor.double().square().sum()) for tensor in start.values())
    return (distance / max(moved, least)) ** 0.5 if moved else float("nan")


def differing(one: Weights, other: Weights) -> tuple[int, int]:
    """In how many values two runs differ, and how many there are."""
    if one.keys() != other.keys():
        return max(len(one), 1), max(len(one), 1)
    return sum(int((one[name] != other[name]).sum()) for name in one), sum(tensor.numel() for tensor in one.values())


def _gradient_norm(trainer: TaskTrainer, module: nn.Module) -> float:
    """Of the first rows, in eval mode."""
    module.eval()
    outputs, batch = forward(module, padded_batch(trainer, range(BATCH)))
    objective = trainer.objective()
    (objective.summed(outputs.logits, batch["labels"]) / objective.weight(batch["labels"])).backward()
    squares = [p.grad.double().square().sum() for p in module.parameters() if p.grad is not None]
    norm = float(torch.stack(squares).sum().sqrt())
    module.zero_grad(set_to_none=True)
    return norm
