"""What the library would say no to after the model is loaded, asked before: its arguments, optimizer and schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, get_scheduler

from supertrainer.core.errors import ConfigError, Problem
from supertrainer.trainers.arguments import training_arguments
from supertrainer.trainers.schema import TrainerConfig


def rehearse(config: TrainerConfig, *, output_dir: Path, seed: int, steps: int) -> None:
    """Makes arguments, optimizer and schedule for one weight, and takes a step.

    Args:
        output_dir: of the arguments; nothing is written.
        steps: of the whole run.

    Raises:
        ConfigError: what the library refuses, in its words.
    """
    arguments = training_arguments(config, output_dir=output_dir, seed=seed, num_processes=1, deterministic=True)
    weight = nn.Parameter(torch.zeros(1))
    name = config.training_kwargs.get("optim", "the default one")
    try:
        made, options = Trainer.get_optimizer_cls_and_kwargs(arguments)
        optimizer = made([weight], **options)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise ConfigError(
            f"trainer.training_kwargs.optim={name}: {_first_line(error)}",
            fix="optim=adamw_torch needs nothing further.",
        ) from error
    _schedule(arguments, optimizer, steps=steps, name=str(config.training_kwargs.get("lr_scheduler_type", "linear")))


def _schedule(arguments: TrainingArguments, optimizer: torch.optim.Optimizer, *, steps: int, name: str) -> None:
    try:
        get_scheduler(
            arguments.lr_scheduler_type,
            optimizer=optimizer,
            num_warmup_steps=arguments.get_warmup_steps(steps),
            num_training_steps=steps,
            scheduler_specific_kwargs=dict(arguments.lr_scheduler_kwargs or {}),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"trainer.training_kwargs.lr_scheduler_type={name}: {_first_line(error)}",
            fix="give what it needs in lr_scheduler_kwargs, or lr_scheduler_type=constant_with_warmup.",
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def length_problems(training_kwargs: Mapping[str, Any], *, steps: int, per_epoch: int) -> Iterator[Problem]:
    """What is set to happen after a run has ended.

    Args:
        steps: of the whole run.
        per_epoch: of an epoch.
    """
    path = "trainer.training_kwargs"
    warmup = training_kwargs.get("warmup_steps", 0)
    length = f"the run has {steps} steps ({per_epoch} an epoch)"
    if warmup >= 1 and warmup > steps:
        yield Problem(
            f"{path}.warmup_steps={warmup:g}: {length}.",
            why="the learning rate would never come to what learning_rate says.",
            fix=f"warmup_steps={steps // 10}, or a longer run.",
        )
    for what in ("eval", "save"):
        every = training_kwargs.get(f"{what}_steps")
        if training_kwargs.get(f"{what}_strategy") == "steps" and every is not None and every >= 1 and every > steps:
            yield Problem(
                f"{path}.{what}_steps={every:g}: {length}.",
                why=f"nothing would be {'evaluated' if what == 'eval' else 'saved'} before the last step.",
                fix=f"{what}_steps={max(steps // 4, 1)}, or {what}_strategy=epoch.",
            )
    delay = training_kwargs.get("eval_delay", 0)
    strategy = training_kwargs.get("eval_strategy", "no")
    last = steps if strategy == "steps" else math.ceil(steps / per_epoch)
    if strategy != "no" and delay > last:
        yield Problem(
            f"{path}.eval_delay={delay:g}: {length}.",
            why="nothing would be evaluated.",
            fix=f"eval_delay={last // 2} or less.",
        )
