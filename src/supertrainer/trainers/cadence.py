"""When a step is logged, evaluated and saved, and when training ends: a function of the step's number alone."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.errors import ConfigError


@dataclass(frozen=True)
class Cadence:
    """What is due after a step.

    The library decides epochs' ends outside the step, so a run that is resumed from the last step of an epoch never
    evaluates it. Here everything that belongs to a step happens in it, in the order log, evaluate, save: whatever has
    been saved has been evaluated.

    Attributes:
        steps_per_epoch: optimizer steps of an epoch.
        max_steps: of the whole run.
    """

    args: TrainingArguments
    steps_per_epoch: int
    max_steps: int

    def should_log(self, step: int) -> bool:
        """The first step where asked, the last step, and every `logging_steps` or epoch."""
        first = step == 1 and self.args.logging_first_step
        return first or self._due(step, self.args.logging_strategy, self.args.logging_steps)

    def should_evaluate(self, step: int) -> bool:
        """The last step, and every `eval_steps` or epoch from `eval_delay` on."""
        if self.args.eval_strategy == "no":
            return False
        delay = self.args.eval_delay
        waits = step < delay if self.args.eval_strategy == "steps" else step < delay * self.steps_per_epoch
        return not waits and self._due(step, self.args.eval_strategy, self.args.eval_steps)

    def should_save(self, step: int) -> bool:
        """The last step, always, and every `save_steps` or epoch."""
        return self._due(step, self.args.save_strategy, self.args.save_steps)

    def _due(self, step: int, strategy: str, every: float | None) -> bool:
        if step >= self.max_steps:
            return True
        if strategy == "epoch":
            return step % self.steps_per_epoch == 0
        if strategy == "steps":
            share = every or 0
            interval = math.ceil(share * self.max_steps) if share < 1 else int(share)
            return step % max(interval, 1) == 0
        return False


class CadenceCallback(TrainerCallback):
    """Puts a cadence into force, in place of the library's `DefaultFlowCallback`."""

    def __init__(self, cadence: Cadence) -> None:
        self._cadence = cadence

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        control.should_log |= self._cadence.should_log(step)
        control.should_evaluate |= self._cadence.should_evaluate(step)
        control.should_save |= self._cadence.should_save(step)
        control.should_training_stop |= step >= self._cadence.max_steps


def require_validation_rows(training_kwargs: Mapping[str, Any], splits: Container[str]) -> None:
    """Refuses evaluation of a dataset that has nothing to evaluate.

    Raises:
        ConfigError: with what to set.
    """
    strategy = training_kwargs.get("eval_strategy", "no")
    if strategy != "no" and "validation" not in splits:
        raise ConfigError(
            f"trainer.training_kwargs.eval_strategy={strategy}, and the dataset has no validation rows.",
            why="there is nothing to evaluate.",
            fix="dataset.splits.validation=0.1 makes some of the train rows; eval_strategy=no trains without.",
        )
