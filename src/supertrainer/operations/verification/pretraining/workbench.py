"""Pretraining a config aside, or a single step of it, and what is left of each in numbers."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from supertrainer.checkpoint.manifest import step_name
from supertrainer.config.build import build as build_node
from supertrainer.config.spine import Config
from supertrainer.core.records import last_per_step, read_records
from supertrainer.core.run_directory import RunDirectory
from supertrainer.core.seeds import seed_everything
from supertrainer.data.streams.rows import Rows
from supertrainer.models.distributed_checkpoint import lone_process_is_meant, read_tensors
from supertrainer.models.pretrain import DecoderModel
from supertrainer.operations.pretrain import build_pretrainer
from supertrainer.operations.scoring import build_dataset
from supertrainer.operations.verification.pretraining.documents import cut, noted
from supertrainer.operations.verification.pretraining.reduction import BATCH, reduced, with_drawn_head
from supertrainer.operations.verification.workbench import Weights, require_whole
from supertrainer.trainers.pretraining.building import Built, build
from supertrainer.trainers.pretraining.guard import Guard
from supertrainer.trainers.pretraining.optimizer import training_state
from supertrainer.trainers.pretraining.saving import read_facts
from supertrainer.trainers.pretraining.update import Updater
from supertrainer.trainers.stop_request import StopRequest

ROW_VALUES = ("loss", "lr", "grad_norm", "eval_loss", "tokens", "epoch", "skipped_steps")
"""Of metrics.jsonl, what a run computes; the others are about how fast."""


@dataclasses.dataclass(frozen=True)
class Step:
    """What a first step came to.

    Attributes:
        loss, grad_norm: as the run logs them.
        start, weights: before and after it.
        gradients: of each weight, clipped, as the optimizer got them; after several steps their running mean.
    """

    loss: float
    grad_norm: float
    start: Weights
    weights: Weights
    gradients: Weights


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that has come to its end.

    Attributes:
        run: its directory.
        rows: what it was given in each of its own steps, by step.
        rates: of every group of the optimizer, by step.
        random: the state of torch's generator after it.
    """

    run: RunDirectory
    rows: dict[int, Rows]
    rates: dict[int, list[float]]
    random: Tensor

    def state(self, step: int) -> Weights:
        """Weights and moments of a step."""
        return state_of(self.run, step)

    def facts(self, step: int) -> dict[str, Any]:
        """All else of its checkpoint: where the data stands, counters, what the guard has seen."""
        return read_facts(self.run.checkpoints / step_name(step))

    def logged(self) -> dict[int, dict[str, Any]]:
        """What it computed, by step."""
        return logged(self.run)


class PretrainWorkbench:
    """A pretraining, reduced; and runs of it in a directory that is removed afterwards.

    Attributes:
        own: the config as it is.
        config: in a few short steps, otherwise as it is.
        drawn: the same with a head that doesn't start at zero, where nothing else has a gradient at first.
        dataset: its documents.
        vocab_size: of its tokenizer.
    """

    def __init__(self, config: Config, *, directory: Path) -> None:
        """
        Raises:
            ConfigError: what can't be trained as configured.
            DataError: faulty documents, or too few of them.
        """
        self.own, self.config = config, reduced(config)
        self.drawn = with_drawn_head(self.config)
        self.directory = directory
        self.dataset: Any = build_dataset(self.config)
        self.tokenizer = self.dataset.tokenizer()
        self.vocab_size = len(self.tokenizer)
        seed_everything(config.run.seed, deterministic=True)

    @property
    def sequence_length(self) -> int:
        """Tokens of a row."""
        return int(self.config.trainer.sequence_length)

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows of the first step, cut into more documents than they have."""
        return cut(next(iter(self.steps(1))))

    def steps(self, count: int, *, state: Any = None, **place: int) -> Iterator[Rows]:
        """The rows of steps, as the streams give them.

        Args:
            count: of steps.
            state: where to go on from; None: the beginning.
            place: `rank` and `world_size`, of another number of processes.
        """
        with self.dataset.open(
            sequence_length=self.sequence_length, global_batch_size=BATCH, state=state, **place
        ) as stream:
            for _ in range(count):
                yield stream.next_step()

    def model(self, config: Config | None = None) -> DecoderModel:
        """The decoder's model, of this or another config."""
        found: DecoderModel = build_node((config or self.config).model, allowed=self.own.allow_targets)
        return found

    def built(self, config: Config | None = None) -> Built:
        """The decoder at the start, of `drawn` or another config, with its optimizer."""
        config = config or self.drawn
        return build(config.trainer, model=self.model(config), tokenizer=self.tokenizer, seed=config.run.seed)

    def step(self, config: Config | None = None, *, micro: int = BATCH, count: int = 1) -> Step:
        """A step of a config on the first rows, at the peak of its rates.

        Args:
            config: None: `drawn`.
            micro: rows that are computed at once.
            count: how often it is made.
        """
        config = config or self.drawn
        built = self.built(config)
        start = _copied(training_state(built.decoder, built.optimizer)["model"])
        updater = Updater(built, config.trainer, guard=Guard(config.trainer.guard), micro_batch_rows=micro)
        for _ in range(count):
            update = updater.step(self.rows, request=StopRequest())
        state = training_state(built.decoder, built.optimizer)
        gradients = {name: state["optimizer"][f"state.{name}.exp_avg"].detach().cpu() for name in state["model"]}
        share = 1 - config.trainer.betas[0]
        return Step(
            loss=update.loss,
            grad_norm=update.grad_norm,
            start=start,
            weights=_copied(state["model"]),
            gradients={name: moment / share for name, moment in gradients.items()},
        )

    @contextmanager
    def trained(
        self, name: str, config: Config | None = None, *, begin: Callable[[RunDirectory], None] | None = None
    ) -> Iterator[Trained]:
        """Trains a config in this process to its end; its files are there while the context is open.

        Args:
            name: of its directory.
            config: None: the reduced one.
            begin: puts into the run directory what an earlier start left there.
        """
        run = RunDirectory(self.directory / name)
        run.create()
        if begin is not None:
            begin(run)
        try:
            yield train(config or self.config, run, attempt=1 if begin is None else 2)
        finally:
            shutil.rmtree(run.path, ignore_errors=True)


def train(config: Config, run: RunDirectory, *, attempt: int = 1) -> Trained:
    """Trains a config in this process, or in all that are connected, from where its run stands."""
    dataset, steps = noted(build_dataset(config))
    rates: list[list[float]] = []

    def note(optimizer: Optimizer, *_: Any) -> None:
        rates.append([float(group["lr"]) for group in optimizer.param_groups])

    handle = register_optimizer_step_pre_hook(note)
    try:
        result = build_pretrainer(config, run, dataset=dataset, attempt=attempt).train()
    finally:
        handle.remove()
    require_whole(result.stopped_by)
    first = result.first_step + 1
    return Trained(run, dict(enumerate(steps, first)), dict(enumerate(rates, first)), torch.get_rng_state())


def state_of(run: RunDirectory, step: int) -> Weights:
    """Weights and moments of a run's step: `model.…`, `optimizer.state.…`."""
    with lone_process_is_meant():
        return read_tensors(run.checkpoints / step_name(step))


def logged(run: RunDirectory) -> dict[int, dict[str, Any]]:
    """What a run computed, by step."""
    rows = last_per_step(read_records(run.metrics_jsonl).rows)
    return {row["step"]: {name: row[name] for name in ROW_VALUES if name in row} for row in rows}


def weights_of(state: Weights) -> Weights:
    """The weights of a step alone, by the decoder's names."""
    return {name.removeprefix("model."): tensor for name, tensor in state.items() if name.startswith("model.")}


def share_of(one: Weights, other: Weights) -> float:
    """How long the difference is, as a share of the other's length, all together."""
    difference = sum(float((one[name] - tensor).double().square().sum()) for name, tensor in other.items())
    length = sum(float(tensor.double().square().sum()) for tensor in other.values())
    return (difference / length) ** 0.5 if length else float("nan")


def relative(one: float, other: float) -> float:
    """The difference of two figures, as a share of the other."""
    return abs(one - other) / abs(other) if other else float("nan")


def _copied(state: Weights) -> Weights:
    return {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
