"""Gradients of processes that hold the whole model each: summed in buckets, while the backward pass still runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

BUCKET_BYTES = 25 * 2**20


@dataclass
class _Bucket:
    buffer: Tensor
    size: int  # parameters in it
    waiting: int = 0
    work: Any = field(default=None)


class GradientBuckets:
    """Holds every gradient as a part of a few long buffers, which are added up over the processes.

    What lies where is settled once, unlike in torch's DDP, which regroups after a process's first backward pass: the
    order in which three processes or more add up follows the grouping, so a resumed run would differ in the last bit.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], *, bucket_bytes: int = BUCKET_BYTES) -> None:
        """
        Args:
            parameters: in the order of the forward pass; each gets a gradient of zeros.
            bucket_bytes: of a buffer, if no parameter is larger.
        """
        self._syncing = False
        self._next = 0
        self._buckets: list[_Bucket] = []
        group: list[nn.Parameter] = []
        for parameter in reversed(list(parameters)):  # the backward pass comes to the last ones first
            if group and sum(p.nbytes for p in group) + parameter.nbytes > bucket_bytes:
                self._add(group)
                group = []
            group.append(parameter)
        self._add(group)

    @property
    def buffers(self) -> list[Tensor]:
        """All gradients."""
        return [bucket.buffer for bucket in self._buckets]

    def zero(self) -> None:
        """Before a step."""
        torch._foreach_zero_(self.buffers)

    def before_last_backward(self) -> None:
        """From now on a bucket is sent as soon as all of its gradients are there."""
        self._syncing, self._next = True, 0
        for bucket in self._buckets:
            bucket.waiting, bucket.work = bucket.size, None

    def finish(self) -> None:
        """After the last backward pass: returns once the sums are there, on a GPU once they are queued."""
        for bucket in self._buckets:
            bucket.waiting = 0  # a parameter that had no part in the step has no gradient to wait for
        self._send()
        for bucket in self._buckets:
            bucket.work.wait()
        self._syncing = False

    def _add(self, group: Sequence[nn.Parameter]) -> None:
        buffer = torch.zeros(sum(p.numel() for p in group), dtype=group[0].dtype, device=group[0].device)
        bucket = _Bucket(buffer, len(group))
        start = 0
        for parameter in group:
            parameter.grad = buffer[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
            parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self._ready(bucket))
        self._buckets.append(bucket)

    def _ready(self, bucket: _Bucket) -> None:
        if self._syncing:
            bucket.waiting -= 1
            self._send()

    def _send(self) -> None:
        """Buckets go in their own order, the same on every process."""
        while self._next < len(self._buckets) and self._buckets[self._next].waiting == 0:
            bucket = self._buckets[self._next]
            bucket.work = dist.all_reduce(bucket.buffer, async_op=True)
            self._next += 1


def total_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of all gradients as one vector, float32, on every process; also where they are divided over processes.

    Summed in float64 and rounded once: a CPU sums a long float32 tensor so coarsely (2e-4 for six million values) that
    how the gradients lie in buckets and parts would show, and with it the number of processes.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(gradients), 2, dtype=torch.float64)))
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).float()
