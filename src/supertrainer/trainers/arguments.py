"""`trainer.training_kwargs` -> `transformers.TrainingArguments`: what the user set, and what one place decides."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, LaunchError, raise_all
from supertrainer.trainers.schema import TrainerConfig
from supertrainer.trainers.steps import accumulation_steps, precision_problems

_DEVICE_VARIABLE = "ACCELERATE_TORCH_DEVICE"

# transformers 5.24 has renamed gradient checkpointing; 5.17 knows the old name only, and both are understood here.
_CHECKPOINTING = {
    "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs",
}


def training_arguments(
    config: TrainerConfig, *, output_dir: Path, seed: int, num_processes: int, deterministic: bool
) -> TrainingArguments:
    """The arguments of the Hugging Face Trainer.

    Args:
        output_dir: where it writes checkpoints before they are committed.
        seed: of every random choice.
        num_processes: how many processes train together.
        deterministic: whether gradients are to be added in the same order before and after a resume.

    Raises:
        ConfigError: micro-batches that don't divide the step, a number format that this machine lacks, or values that
            TrainingArguments refuses.
        LaunchError: the library doesn't see the processes that train together.
    """
    given = thaw(config.training_kwargs)
    raise_all(ConfigError, precision_problems(given, has_gpu=torch.cuda.is_available()))
    given.setdefault("per_device_train_batch_size", config.micro_batch_size)
    # DDP regroups gradients after the first step of a process, unless it looks for unused ones. From three processes on
    # the grouping decides in which order a ring adds, so a resumed run, whose first step comes later, would differ.
    given.setdefault("ddp_find_unused_parameters", deterministic)
    accumulation = accumulation_steps(
        global_batch_size=config.global_batch_size,
        micro_batch_size=given["per_device_train_batch_size"],
        num_processes=num_processes,
    )
    decided: dict[str, Any] = {
        "output_dir": str(output_dir),
        "gradient_accumulation_steps": accumulation,
        "seed": seed,
        "report_to": "none",
        # Without an accelerator the library has to be told: it would leave every process to train by itself.
        "use_cpu": not torch.accelerator.is_available(),
        "remove_unused_columns": False,
        "average_tokens_across_devices": True,  # the loss counts labels over all processes
        "logging_nan_inf_filter": False,  # it would read the loss back after every micro-batch, and hide what it finds
    }
    try:
        with _cpu_without_a_number() if decided["use_cpu"] else contextlib.nullcontext():
            arguments = TrainingArguments(**_renamed(given), **decided)
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(
            f"trainer.training_kwargs: {str(error).splitlines()[0]}", fix="see transformers.TrainingArguments."
        ) from error
    if arguments.world_size != num_processes:
        raise LaunchError(
            f"{num_processes} processes were started, and the Trainer sees {arguments.world_size}.",
            why="they would train apart from each other, each as if it were alone.",
            fix="start them with torchrun or srun; ACCELERATE_* variables in the environment may say otherwise.",
        )
    return arguments


@contextlib.contextmanager
def _cpu_without_a_number() -> Iterator[None]:
    """accelerate calls the CPU of each of several processes cpu:0, and transformers before 5.24 can't load an optimizer
    onto a device of that name; the variable says how it is to be called.
    """
    before = os.environ.get(_DEVICE_VARIABLE)
    os.environ[_DEVICE_VARIABLE] = "cpu"
    try:
        yield
    finally:
        del os.environ[_DEVICE_VARIABLE]
        if before is not None:
            os.environ[_DEVICE_VARIABLE] = before


def _renamed(given: dict[str, Any]) -> dict[str, Any]:
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    for old, new in _CHECKPOINTING.items():
        name, other = (new, old) if new in known else (old, new)
        if other in given:
            given.setdefault(name, given.pop(other))
    return given
