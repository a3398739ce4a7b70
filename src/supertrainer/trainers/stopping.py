"""A signal to any process ends fine-tuning after the step, with a checkpoint."""

from __future__ import annotations

from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.distributed import all_reduce_sum, world_size
from supertrainer.core.job import has_waiting_script
from supertrainer.trainers.stop_request import StopRequest


class StopSignal(TrainerCallback):
    """Stops training after the step in which a process got a signal, with a checkpoint.

    Attributes:
        request: what this process was asked.
        stopped: whether training was stopped so.
    """

    def __init__(self) -> None:
        self.request = StopRequest()
        self.stopped = False

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._anybody_received():
            # At the last step there is nothing left to stop, but a job may not have the time to report.
            self.stopped = has_waiting_script() or not control.should_training_stop
            control.should_save = True
            control.should_training_stop = True

    def _anybody_received(self) -> bool:
        if world_size() == 1:
            return self.request.received
        return bool(all_reduce_sum(torch.tensor([int(self.request.received)])).item())
