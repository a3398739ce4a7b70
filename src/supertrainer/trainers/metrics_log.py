"""metrics.jsonl and the tracker: one row for every logged step, one for every evaluation."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.distributed import is_main, world_size
from supertrainer.core.records import append_record
from supertrainer.data.batching import BatchPlan
from supertrainer.trainers.losses import StepLoss
from supertrainer.trainers.throughput import peak_memory_gib
from supertrainer.trainers.trackers import Tracker

EVAL_PREFIX = "eval_"


class TokenCount:
    """Tokens of every step and up to it, padding not counted: a function of the plan, so nothing has to be saved."""

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._epoch = -1
        self._cumulated = np.zeros(1, dtype=np.int64)

    def up_to(self, step: int) -> int:
        """Tokens of the first `step` optimizer steps, over all processes."""
        epoch, inside = divmod(step, self._plan.steps_per_epoch)
        if epoch != self._epoch and inside:
            counts = [int(self._plan.lengths[rows].sum()) for rows in self._plan.step_rows(epoch)]
            self._cumulated, self._epoch = np.concatenate([[0], np.cumsum(counts)]), epoch
        return epoch * int(self._plan.lengths.sum()) + (int(self._cumulated[inside]) if inside else 0)

    def rows_up_to(self, step: int) -> int:
        """Rows of the first `step` optimizer steps."""
        epoch, inside = divmod(step, self._plan.steps_per_epoch)
        return epoch * len(self._plan.lengths) + inside * self._plan.global_batch_size


class MetricsCallback(TrainerCallback):
    """Writes the rows. Time of evaluations and checkpoints isn't counted as training."""

    def __init__(
        self,
        path: Path,
        *,
        attempt: int,
        loss: StepLoss,
        tokens: TokenCount,
        tracker: Tracker,
        flops_per_token: float,
        peak_flops: float | None,
        device: torch.device,
    ) -> None:
        self._path = path
        self._attempt = attempt
        self._loss = loss
        self._tokens = tokens
        self._tracker = tracker
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._device = device
        self._mark = time.perf_counter()
        self._logged_step = 0
        self._seconds_since_log = 0.0
        self.seconds = 0.0  # of training, all in all
        self.first_step = 0  # the step before the first of this attempt

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.first_step = self._logged_step = state.global_step
        self._mark = time.perf_counter()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._loss.end_step(state.global_step)
        now = time.perf_counter()
        self._seconds_since_log += now - self._mark
        self.seconds += now - self._mark
        self._mark = now

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        logs = logs if logs is not None else {}
        if "loss" in logs:
            logs["loss"] = self._loss.drain()  # every process; the callbacks after this one show it too
            self._write(state, self._training_row(state, logs))
        elif any(name.startswith(EVAL_PREFIX) for name in logs):
            self._write(state, {name: value for name, value in logs.items() if name.startswith(EVAL_PREFIX)})
        state.log_history.clear()  # it would grow, and be saved with every checkpoint
        self._mark = time.perf_counter()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._mark = time.perf_counter()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._mark = time.perf_counter()

    def _training_row(self, state: TrainerState, logs: Mapping[str, Any]) -> dict[str, Any]:
        tokens = self._tokens.up_to(state.global_step) - self._tokens.up_to(self._logged_step)
        rate = tokens / max(self._seconds_since_log, 1e-9)
        self._logged_step, self._seconds_since_log = state.global_step, 0.0
        available = None if self._peak_flops is None else self._peak_flops * world_size()
        return {
            "loss": logs["loss"],
            "lr": logs["learning_rate"],
            "grad_norm": logs.get("grad_norm"),
            "tokens_per_second": rate,
            "mfu": None if available is None else rate * self._flops_per_token / available,
            "peak_memory_gib": peak_memory_gib(self._device),
        }

    def _write(self, state: TrainerState, values: Mapping[str, Any]) -> None:
        if not is_main():
            return
        step, epoch = state.global_step, round(state.epoch or 0.0, 6)
        tokens = self._tokens.up_to(step)
        append_record(self._path, {"attempt": self._attempt, "step": step, "epoch": epoch, "tokens": tokens, **values})
        self._tracker.log(step, {name: value for name, value in values.items() if value is not None})
