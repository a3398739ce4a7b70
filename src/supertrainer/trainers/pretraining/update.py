"""One optimizer step: micro-batches, gradients of all processes, their norm, the guard, AdamW."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from supertrainer.core.distributed import world_size
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig
from supertrainer.trainers.pretraining.batches import micro_batches
from supertrainer.trainers.pretraining.building import Built
from supertrainer.trainers.pretraining.gradients import GradientBuckets, total_norm
from supertrainer.trainers.pretraining.guard import Guard
from supertrainer.trainers.stop_request import StopRequest

_CLIP_EPS = 1e-6  # as torch's own clipping


@dataclass(frozen=True)
class Update:
    """What came of a step; the same on every process.

    Attributes:
        loss: mean over the tokens that were predicted, of all processes and micro-batches.
        grad_norm: before clipping.
        skipped: why the weights were left as they were; empty where they weren't.
        stop: whether any process was asked to stop.
    """

    loss: float
    grad_norm: float
    skipped: str
    stop: bool


class Updater:
    """Makes steps of one model. A step's loss is the sum over the tokens of all processes, divided by their number."""

    def __init__(self, built: Built, config: PretrainTrainerConfig, *, guard: Guard, micro_batch_rows: int) -> None:
        """
        Args:
            built: the model and its optimizer.
            config: clipping, z-loss.
            guard: judges each step.
            micro_batch_rows: rows that a process computes at once.
        """
        self._decoder, self._optimizer, self._layout = built.decoder, built.optimizer, built.layout
        self._guard = guard
        self._micro_batch_rows = micro_batch_rows
        self._max_grad_norm = config.max_grad_norm
        self._z_loss = config.z_loss
        self._parameters = list(built.decoder.parameters())
        self._buckets = GradientBuckets(self._parameters) if built.layout.strategy == "ddp" else None

    def step(self, rows: Any, *, request: StopRequest) -> Update:
        """Makes an update, or leaves it out where the guard says so. Every process calls it.

        Args:
            rows: this process's of the step.
            request: what this process was asked, until the end of the step.
        """
        sums = self._accumulate(rows)
        gradients = self._gradients()
        norm = total_norm(gradients).double()
        loss, grad_norm, asked = self._agree(sums, norm, stop=request.received)
        skipped = self._guard.judge(loss=loss, grad_norm=grad_norm)
        if not skipped:
            if self._max_grad_norm is not None and grad_norm > self._max_grad_norm:
                torch._foreach_mul_(gradients, self._max_grad_norm / (grad_norm + _CLIP_EPS))
            self._optimizer.step()
        if self._buckets is None:
            self._optimizer.zero_grad(set_to_none=True)
        else:
            self._buckets.zero()
        return Update(loss, grad_norm, skipped, asked)

    def _accumulate(self, rows: Any) -> Tensor:
        """Gradients of this process's rows, divided by the tokens of all; returns this process's loss likewise."""
        device = self._layout.device
        parts, valid = micro_batches(rows, self._micro_batch_rows, device=device)
        count = torch.tensor(valid, dtype=torch.float64).to(device, non_blocking=True)
        counting = dist.all_reduce(count, async_op=True) if world_size() > 1 else None
        total = torch.zeros((), dtype=torch.float64, device=device)
        for number, part in enumerate(parts, 1):
            with self._layout.computing():
                sums = self._decoder(part.inputs, targets=part.targets, documents=part.documents, z_loss=self._z_loss)
            if number == 1:
                if counting is not None:
                    counting.wait()
                count = count.clamp(min=1)  # a step without a token to predict has a loss of 0, and moves nothing
                share = (1 / count).float()
            if number == len(parts) and self._buckets is not None:
                self._buckets.before_last_backward()
            ((sums.nll + sums.z_loss) * share).backward()
            total += sums.nll.detach()
        if self._buckets is not None:
            self._buckets.finish()
        return total / count

    def _gradients(self) -> list[Tensor]:
        if self._buckets is not None:
            return self._buckets.buffers
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def _agree(self, loss: Tensor, norm: Tensor, *, stop: bool) -> tuple[float, float, bool]:
        """Loss, norm and wish to stop over all processes: one message, and one wait for the device, a step."""
        shared = torch.stack([loss, torch.tensor(float(stop), dtype=torch.float64).to(loss.device, non_blocking=True)])
        if world_size() > 1:
            dist.all_reduce(shared)
        total, asked, grad_norm = torch.cat([shared, norm[None]]).tolist()
        return total, grad_norm, asked > 0
