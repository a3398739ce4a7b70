"""One call of `train`, put together: batches, loss, callbacks and the Hugging Face Trainer around them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.distributed import rank, world_size
from supertrainer.data.batching import BatchPlan, MicroBatchSampler
from supertrainer.data.collation import EncodedRows
from supertrainer.data.masking import EpochNumbers, MaskedRows
from supertrainer.data.packing import PackedRows
from supertrainer.trainers.cadence import Cadence, CadenceCallback
from supertrainer.trainers.checkpointing import CheckpointCallback
from supertrainer.trainers.hf import ExactTrainer
from supertrainer.trainers.losses import Objective, StepLoss
from supertrainer.trainers.metrics_log import MetricsCallback, TokenCount
from supertrainer.trainers.progress import Progress
from supertrainer.trainers.stopping import StopSignal
from supertrainer.trainers.throughput import flops_per_token, peak_flops
from supertrainer.trainers.trackers import Tracker


@dataclass(frozen=True)
class Session:
    """A Trainer that is ready to train, and the callbacks that are asked afterwards."""

    trainer: ExactTrainer
    metrics: MetricsCallback
    stop: StopSignal
    tokens: TokenCount


def build_session(
    module: nn.Module,
    *,
    args: TrainingArguments,
    rows: EncodedRows | MaskedRows | PackedRows,
    plan: BatchPlan,
    planned_steps: int,
    pad_token_id: int,
    objective: Objective,
    evaluation: Callable[[nn.Module], Mapping[str, float]] | None,
    write_model: Callable[[nn.Module, Path], None],
    checkpoints: CheckpointCallback,
    tracker: Tracker,
    metrics_path: Path,
    main_metric: str,
    attempt: int,
    regroup: Callable[[Optimizer, nn.Module], None] | None = None,
) -> Session:
    """Puts the parts together.

    Args:
        module: what is trained.
        args: arguments of the Trainer.
        rows: what it is trained on.
        plan: which rows make up each step.
        planned_steps: of the whole run.
        pad_token_id: of the tokenizer.
        objective: what a step's loss is.
        evaluation: computes the validation scalars; None where nothing is evaluated.
        write_model: writes a model directory.
        checkpoints: commits them.
        tracker: takes the curves.
        metrics_path: metrics.jsonl.
        main_metric: shown beside the progress bar.
        attempt: number of this start.
        regroup: changes the groups of a new optimizer.
    """
    loss, stop, tokens = StepLoss(objective), StopSignal(), TokenCount(plan)
    sampler = _sampler(plan, args)
    metrics = MetricsCallback(
        metrics_path,
        attempt=attempt,
        loss=loss,
        tokens=tokens,
        tracker=tracker,
        flops_per_token=flops_per_token(module),
        peak_flops=peak_flops(args.device, half_precision=args.bf16 or args.fp16),
        device=args.device,
    )
    cadence = Cadence(args, steps_per_epoch=plan.steps_per_epoch, max_steps=planned_steps)
    order = [RandomStates(args.seed), EpochOrder(sampler), metrics, CadenceCallback(cadence), stop, checkpoints]
    trainer = ExactTrainer(
        model=module,
        args=args,
        loader=_loader(rows, sampler, args=args, pad_token_id=pad_token_id),
        loss=loss,
        evaluation=evaluation,
        write_model=write_model,
        callbacks=[*order, Progress(main_metric=main_metric)],
        regroup=regroup,
    )
    return Session(trainer, metrics, stop, tokens)


def rows_of_a_step(args: TrainingArguments, *, rows: int) -> str:
    """How the rows of an optimizer step are dealt, in words."""
    dealt = f"{args.per_device_train_batch_size} × {args.gradient_accumulation_steps} micro-batches"
    return f"a step has {rows} rows = {dealt} × {world_size()} processes"


class EpochOrder(TrainerCallback):
    """Tells the sampler which epoch begins. Both ends of the library's versions call this before they draw a batch."""

    def __init__(self, sampler: MicroBatchSampler) -> None:
        self._sampler = sampler

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._sampler.set_epoch(state.global_step // self._sampler.plan.steps_per_epoch)


class RandomStates(TrainerCallback):
    """Other dropout on every process. A resumed run loads the states of its own process after this."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        seed = (self._seed + 1_000_003 * rank()) % 2**32
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)


def _sampler(plan: BatchPlan, args: TrainingArguments) -> MicroBatchSampler:
    return MicroBatchSampler(
        plan,
        micro_batch_size=args.per_device_train_batch_size,
        accumulation=args.gradient_accumulation_steps,
        rank=rank(),
        world_size=world_size(),
    )


def _loader(
    rows: EncodedRows | MaskedRows | PackedRows,
    sampler: MicroBatchSampler,
    *,
    args: TrainingArguments,
    pad_token_id: int,
) -> DataLoader[Any]:
    workers = args.dataloader_num_workers
    return DataLoader(
        rows,  # type: ignore[arg-type]  # map-style by its methods
        batch_sampler=EpochNumbers(sampler) if isinstance(rows, MaskedRows) else sampler,
        collate_fn=functools.partial(rows.collate, pad_token_id=pad_token_id),
        num_workers=workers,
        prefetch_factor=args.dataloader_prefetch_factor,
        persistent_workers=args.dataloader_persistent_workers and workers > 0,
        pin_memory=args.dataloader_pin_memory and args.device.type == "cuda",
        generator=torch.Generator().manual_seed(args.seed),  # its own: iterating draws nothing from the model's dropout
    )
