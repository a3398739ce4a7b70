"""Rows of metrics.jsonl and the tracker, and how far training is for people, on the first process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from supertrainer.core.distributed import all_reduce_sum, is_main
from supertrainer.core.records import append_record
from supertrainer.trainers.pretraining.layout import Layout
from supertrainer.trainers.pretraining.update import Update
from supertrainer.trainers.progress_bar import StepBar
from supertrainer.trainers.throughput import measured_flops, peak_flops, peak_memory_gib
from supertrainer.trainers.trackers import Tracker

SHOWN = frozenset({"loss", "eval_loss"})


class Recorder:
    """Counts time and tokens, and writes a row for every logged step and every evaluation.

    Attributes:
        seconds: of training in this call; what happens inside `apart` isn't counted.
    """

    def __init__(
        self,
        path: Path,
        *,
        attempt: int,
        tracker: Tracker,
        layout: Layout,
        tokens_per_step: int,
        flops_per_token: float,
    ) -> None:
        """
        Args:
            path: metrics.jsonl.
            attempt: number of this start.
            tracker: takes the curves.
            layout: of the processes.
            tokens_per_step: over all processes.
            flops_per_token: of forward and backward pass.
        """
        self._path = path
        self._attempt = attempt
        self._tracker = tracker
        self._device = layout.device
        self._tokens_per_step = tokens_per_step
        self._flops_per_token = flops_per_token
        self._peak_flops = _peak_of_all(layout)
        self._bar = StepBar()
        self._losses: list[float] = []
        self._mark = time.perf_counter()
        self._since_row = 0.0
        self._steps_since_row = 0
        self.seconds = 0.0

    def start(self, *, total: int, done: int, losses: Sequence[float]) -> None:
        """Begins to count.

        Args:
            total: steps of the whole run.
            done: of them, before this call.
            losses: of steps that an attempt before made after its last row.
        """
        self._losses = list(losses)
        self._bar.open(total=total, done=done)
        self._mark = time.perf_counter()

    def close(self) -> None:
        """Ends the display."""
        self._bar.close()

    @property
    def losses(self) -> list[float]:
        """Since the last row, of the updates that were made."""
        return list(self._losses)

    def end_step(self, update: Update, *, step: int) -> None:
        """Counts a step."""
        now = time.perf_counter()
        self._since_row += now - self._mark
        self.seconds += now - self._mark
        self._mark = now
        self._steps_since_row += 1
        if not update.skipped:
            self._losses.append(update.loss)
        self._bar.update(step)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Around what isn't training: evaluations, checkpoints."""
        yield
        self._mark = time.perf_counter()

    def training_row(self, update: Update, *, step: int, epoch: float, lr: float, skipped: int) -> None:
        """Writes what was counted since the last row."""
        rate = self.rate(self._steps_since_row, self._since_row)
        loss = sum(self._losses) / len(self._losses) if self._losses else update.loss
        self._losses, self._since_row, self._steps_since_row = [], 0.0, 0
        values = {
            "loss": loss,
            "lr": lr,
            "grad_norm": update.grad_norm,
            "tokens_per_second": rate,
            "mfu": self.mfu(rate),
            "peak_memory_gib": peak_memory_gib(self._device),
            "skipped_steps": skipped,
        }
        self.write(values, step=step, epoch=epoch)

    def write(self, values: Mapping[str, Any], *, step: int, epoch: float) -> None:
        """Writes a row, on the first process."""
        for name in SHOWN & values.keys():
            self._bar.show(name, values[name])
        if not is_main():
            return
        tokens = step * self._tokens_per_step
        head = {"attempt": self._attempt, "step": step, "epoch": round(epoch, 6), "tokens": tokens}
        append_record(self._path, {**head, **values})
        self._tracker.log(step, {name: value for name, value in values.items() if value is not None})

    def rate(self, steps: int, seconds: float) -> float | None:
        """Tokens per second."""
        return steps * self._tokens_per_step / seconds if seconds else None

    def mfu(self, rate: float | None) -> float | None:
        """The share of the devices' peak that a rate comes to."""
        return None if rate is None else rate * self._flops_per_token / self._peak_flops


def _peak_of_all(layout: Layout) -> float:
    """FLOP/s of the devices of all processes: as the vendor lists them, else as a product of matrices shows."""
    peak = peak_flops(layout.device, half_precision=layout.dtype == torch.bfloat16)
    if peak is None:
        peak = measured_flops(layout.device, layout.dtype)
    return float(all_reduce_sum(torch.tensor([peak], dtype=torch.float64)).item())
