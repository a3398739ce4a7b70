"""How a pretraining ends that can't go on: which error is told, and what is left of the run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import torch.distributed as dist

from supertrainer.checkpoint.manifest import step_name
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.errors import DataError, LaunchError, SupertrainerError
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig
from supertrainer.trainers.pretraining.guard import Guard

_LOST_CONNECTION = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")  # of gloo


def hopeless(guard: Guard, config: PretrainTrainerConfig, *, step: int, store: CheckpointStore) -> SupertrainerError:
    """The error for a guard that has given up.

    Args:
        guard: has left out `in_a_row` updates.
        config: of the run.
        step: the last of those.
        store: the run's checkpoints; what is being written must be committed.
    """
    made = step - guard.in_a_row
    warmup = config.schedule.warmup_steps
    mends = [
        f"a lower trainer.learning_rate ({config.learning_rate / 2:g}, say; it is {config.learning_rate:g})",
        f"a longer trainer.schedule.warmup_steps (it is {warmup})",
    ]
    if guard.spiked:
        mends.append(
            f"a larger trainer.guard.spike_sigmas (it is {config.guard.spike_sigmas:g}; null takes whatever is finite)"
        )
    fix = f"with run.fresh=true: {', or '.join(mends)}."
    # Weights that give nothing finite, batch after batch, are spoilt themselves.
    sound = made if guard.spiked else made - 1
    good = max((saved for saved in store.steps() if saved <= sound), default=None)
    if good is not None:
        source = store.directory / step_name(good)
        fix += f" model.source={source} begins it with the weights of step {good}, if the loss still fell there."
    return SupertrainerError(
        f"the last {guard.in_a_row} updates up to step {step} were left out, the last of them because {guard.reason}.",
        why=f"the weights are still those of step {made}, and the same command comes to the same end: the rows and "
        "weights of a step are the same in every start.",
        fix=fix,
    )


@contextlib.contextmanager
def errors_told(store: CheckpointStore) -> Iterator[None]:
    """Around a training with all that it has open, so that what was being written is committed when an error is told.

    Args:
        store: the run's checkpoints.

    Raises:
        DataError: data that can't be read in the middle of a run, with where its weights so far are.
        LaunchError: another process of the run has ended, instead of what its connection says.
    """
    try:
        yield
    except DataError as error:
        if not (steps := store.steps()):
            raise
        saved = store.directory / step_name(steps[-1])
        kept = (
            f" The run stands at step {steps[-1]} at least; model.source={saved} begins another run with its weights."
        )
        raise DataError([dataclasses.replace(problem, fix=problem.fix + kept) for problem in error.problems]) from error
    except RuntimeError as error:
        lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in _LOST_CONNECTION)
        if not lost:
            raise
        raise LaunchError(
            f"another process of the run has ended: {str(error).splitlines()[0]}",
            why="the processes make every step together.",
            fix="its own error stands with its rank; where it has none it was killed, for want of memory perhaps. The "
            "same command goes on from the last checkpoint.",
        ) from error
