"""What follows from a trainer's config by arithmetic: steps, micro-batches, schedules, number formats. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from supertrainer.core.errors import ConfigError, DataError, Problem

# Of lr_scheduler_type: those whose rate at a step doesn't depend on how many steps are to come.
_OPEN_ENDED_SCHEDULES = frozenset(
    {"constant", "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau", "greedy"}
)


def accumulation_steps(*, global_batch_size: int, micro_batch_size: int, num_processes: int) -> int:
    """Micro-batches of one optimizer step on every process.

    Raises:
        ConfigError: the processes' micro-batches don't fill the step evenly; the message gives sizes that do.
    """
    if micro_batch_size < 1 or global_batch_size % (micro_batch_size * num_processes):
        what, _, fix = indivisible(global_batch_size, micro_batch_size, num_processes).partition(" Fix: ")
        raise ConfigError(
            f"trainer.training_kwargs.{what}",
            why="every process runs the same number of micro-batches per optimizer step.",
            fix=fix,
        )
    return global_batch_size // (micro_batch_size * num_processes)


def indivisible(global_batch_size: int, micro_batch_size: int, num_processes: int) -> str:
    """Says that the micro-batches of a step don't fill it, and which sizes would."""
    unit = max(micro_batch_size, 1) * num_processes
    nearest = max(round(global_batch_size / unit), 1) * unit
    share, rest = divmod(global_batch_size, num_processes)
    sizes = [] if rest else [size for size in range(1, share + 1) if share % size == 0]
    closest = sorted(sorted(sizes, key=lambda size: abs(size - micro_batch_size))[:3])
    choices = f", or per_device_train_batch_size={' or '.join(map(str, closest))}" if closest else ""
    processes = f" × {num_processes} processes" if num_processes > 1 else ""
    return (
        f"per_device_train_batch_size={micro_batch_size}{processes} does not divide "
        f"trainer.global_batch_size={global_batch_size}. Fix: trainer.global_batch_size={nearest}{choices}."
    )


def steps_per_epoch(num_rows: int, *, global_batch_size: int, packed: bool = False) -> int:
    """Optimizer steps that go once over the rows; the last one may be short.

    Args:
        packed: whether the rows are packs of several texts each.

    Raises:
        DataError: the rows don't fill one step.
    """
    if num_rows < global_batch_size and packed:
        raise DataError(
            f"the training texts fill {num_rows} packs, fewer than the {global_batch_size} of one optimizer step.",
            why="trainer.packing=packed puts several texts into a row, and global_batch_size counts these rows.",
            fix=f"trainer.global_batch_size={max(num_rows, 1)} or less, trainer.packing=none, or more texts.",
        )
    if num_rows < global_batch_size:
        raise DataError(
            f"{num_rows} training rows are fewer than the {global_batch_size} of one optimizer step.",
            why="not a single whole step could be made.",
            fix=f"trainer.global_batch_size={max(num_rows, 1)} or less, or more rows.",
        )
    return math.ceil(num_rows / global_batch_size)


def planned_steps(
    num_rows: int, *, global_batch_size: int, training_kwargs: Mapping[str, Any], packed: bool = False
) -> int:
    """Optimizer steps of the whole run: `max_steps` where it is positive, else `num_train_epochs` (3 if absent).

    Args:
        packed: whether the rows are packs of several texts each.

    Raises:
        DataError: the rows don't fill one step.
        ConfigError: no step is asked for.
    """
    epoch = steps_per_epoch(num_rows, global_batch_size=global_batch_size, packed=packed)
    max_steps = training_kwargs.get("max_steps", -1)
    epochs = training_kwargs.get("num_train_epochs", 3.0)
    steps = int(max_steps) if max_steps > 0 else math.ceil(epochs * epoch)
    if steps < 1:
        raise ConfigError(
            f"trainer.training_kwargs.num_train_epochs={epochs} and max_steps={max_steps} ask for no step at all.",
            fix="num_train_epochs above 0, or max_steps of 1 or more.",
        )
    return steps


def schedule_depends_on_length(training_kwargs: Mapping[str, Any]) -> bool:
    """Whether the learning rate at a step depends on how many steps the run has.

    Where it does, a longer run is another run from its first step. Where it doesn't, extending a finished run gives
    exactly the longer run.
    """
    schedule = training_kwargs.get("lr_scheduler_type", "linear")
    warmup = training_kwargs.get("warmup_steps", 0)
    return schedule not in _OPEN_ENDED_SCHEDULES or 0 < warmup < 1


def precision_problems(training_kwargs: Mapping[str, Any], *, has_gpu: bool) -> list[Problem]:
    """What of the number formats this machine can't compute with.

    Args:
        has_gpu: whether training will run on a GPU.
    """
    asked = [key for key in ("fp16", "bf16", "fp16_full_eval", "bf16_full_eval", "tf32") if training_kwargs.get(key)]
    if has_gpu:
        return []
    return [
        Problem(
            f"trainer.training_kwargs.{key}=true without a GPU.",
            why="a CPU computes 16-bit formats ten to fifty times slower than float32, and tf32 not at all.",
            fix=f"{key}=false, or run on a GPU.",
        )
        for key in asked
    ]
