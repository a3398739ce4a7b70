"""Ctrl-C, SIGTERM and SIGUSR1: all processes agree on a step, save it and stop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.distributed import all_reduce_sum, world_size
from supertrainer.core.job import has_waiting_script

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
# torchrun hands a Ctrl-C on to processes that the terminal has told already: so soon after, it is the same one.
SAME_REQUEST_SECONDS = 2.0


class StopSignal(TrainerCallback):
    """Stops training after the step in which a process got a signal, with a checkpoint.

    Attributes:
        stopped: whether training was stopped so.
        reason: the signal that this process got; empty where only others got one.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.reason = ""
        self._received: float | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Takes the signals while it is open; the handlers before come back at the end."""
        if threading.current_thread() is not threading.main_thread():  # Python allows handlers only there
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._anybody_received():
            # At the last step there is nothing left to stop, but a job may not have the time to report.
            self.stopped = has_waiting_script() or not control.should_training_stop
            control.should_save = True
            control.should_training_stop = True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._received is None:
            self._received, self.reason = now, signal.Signals(number).name
            # A handler may run in the middle of a write to the log, which must not be entered twice.
            text = f"\n{signal.Signals(number).name}: saving after this step, then stopping; again to stop at once.\n"
            os.write(2, text.encode())
        elif number == signal.SIGINT and now - self._received > SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt

    def _anybody_received(self) -> bool:
        if world_size() == 1:
            return self._received is not None
        return bool(all_reduce_sum(torch.tensor([int(self._received is not None)])).item())
