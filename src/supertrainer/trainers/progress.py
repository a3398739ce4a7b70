"""How far training is, for people, on the first process: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

log = logging.getLogger(__name__)

SECONDS_PER_LINE = 30.0  # a bar would write a line per step into the log of a job


class Progress(TrainerCallback):
    """Steps done, and the last loss and metric beside them."""

    def __init__(self, *, main_metric: str) -> None:
        self._main = f"eval_{main_metric}"
        self._bar: Any = None
        self._next_line: float | None = None  # where there is no terminal: when the next line is due
        self._shown: dict[str, str] = {}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not state.is_world_process_zero or args.disable_tqdm:
            return
        if sys.stderr.isatty():
            self._bar = tqdm(total=state.max_steps, initial=state.global_step, desc="training", unit="step")
        else:
            self._next_line = time.monotonic() + SECONDS_PER_LINE

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)
        elif self._next_line is not None and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + SECONDS_PER_LINE
            values = "".join(f", {name} {value}" for name, value in self._shown.items())
            log.info("step %d of %d%s", state.global_step, state.max_steps, values)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs if logs is not None else {}
        shown = {name.removeprefix("eval_"): logs[name] for name in ("loss", self._main) if name in logs}
        self._shown |= {name: f"{value:.4f}" for name, value in shown.items()}
        if self._bar is not None:
            self._bar.set_postfix(self._shown)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
