"""Rows of a stream as the model takes them: micro-batches on its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from supertrainer.data.streams.rows import NOT_LEARNT


@dataclass(frozen=True)
class MicroBatch:
    """Inputs and targets (rows, T), documents likewise or None where every row is a single one."""

    inputs: Tensor
    targets: Tensor
    documents: Tensor | None


def micro_batches(rows: Any, size: int, *, device: torch.device) -> tuple[list[MicroBatch], int]:
    """The rows in order, `size` at once, and how many of their tokens are predicted.

    Args:
        rows: of a stream.
        size: of a micro-batch; the last one may have fewer.
        device: of the model.
    """
    inputs, targets, documents = rows.inputs, rows.targets, rows.input_documents
    parts = []
    for start in range(0, len(inputs), size):
        part = slice(start, start + size)
        several = documents is not None and bool(documents[part].any())  # they are numbered from 0 in each row
        chosen = _move(documents[part], device) if several else None
        parts.append(MicroBatch(_move(inputs[part], device), _move(targets[part], device), chosen))
    return parts, int(np.count_nonzero(targets != NOT_LEARNT))


def _move(array: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
