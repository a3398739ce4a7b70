"""How long a `transformers.Trainer` trains."""

from __future__ import annotations

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class Clock(TrainerCallback):
    """From the first batch to the last update."""

    def __init__(self) -> None:
        self._began = self._ended = 0.0

    @property
    def seconds(self) -> float:
        """Of the training loop alone."""
        return self._ended - self._began

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._ended = time.perf_counter()
