"""The end of a run whose updates are left out one after the other: why the same command ends so again, what doesn't."""

from __future__ import annotations

from supertrainer.checkpoint.manifest import step_name
from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.core.errors import SupertrainerError
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig
from supertrainer.trainers.pretraining.guard import Guard


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
