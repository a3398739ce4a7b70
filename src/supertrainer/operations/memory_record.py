"""estimate.json of a run: the memory that was estimated before training, beside what it took."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from supertrainer.core.files import read_json, write_json
from supertrainer.core.placement import Placement
from supertrainer.core.run_directory import RunDirectory
from supertrainer.trainers.memory import MemoryEstimate, estimate_memory
from supertrainer.trainers.schema import TrainerConfig
from supertrainer.trainers.throughput import resident_gib

log = logging.getLogger(__name__)


def try_estimate(skeleton: nn.Module, trainer: TrainerConfig, *, length: int, there: Placement) -> MemoryEstimate | str:
    """The estimate, or why there is none: code of an architecture may look at values, which the meta device hasn't."""
    try:
        return estimate_memory(skeleton, trainer, length=length, there=there)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError, IndexError) as error:
        log.debug("no memory estimate", exc_info=True)
        line = str(error).splitlines()[0] if str(error) else ""
        return (
            f"not estimated: this architecture can't be traced without weights ({type(error).__name__}: {line[:120]})"
        )


def record_estimate(run: RunDirectory, estimate: MemoryEstimate | str) -> None:
    """Writes what was estimated, beside what an earlier start has measured."""
    found = {"note": estimate} if isinstance(estimate, str) else estimate.as_dict()
    measured = _written(run).get("measured")
    write_json(run.estimate_json, _with_ratio({**found, "measured": measured}))


def start_of_memory(device: torch.device) -> float | None:
    """What the process has before there is a model, in GiB: nothing on a GPU, where only tensors are counted."""
    return 0.0 if device.type == "cuda" else resident_gib()


def record_measured(run: RunDirectory, *, start: float | None, peak: float, attempt: int) -> None:
    """Adds what a training took.

    Args:
        start: before there was a model; None where the system doesn't say.
        peak: the most, in GiB: of a GPU what torch allocated there, else resident memory.
    """
    growth = None if start is None else peak - start
    measured = {"start_gib": start, "peak_gib": peak, "growth_gib": growth, "attempt": attempt}
    write_json(run.estimate_json, _with_ratio({**_written(run), "measured": measured}))


def _with_ratio(record: dict[str, Any]) -> dict[str, Any]:
    growth, expected = (record.get("measured") or {}).get("growth_gib"), record.get("peak_gib")
    ratio = expected / growth if expected and growth and growth > 0 else None
    return {**record, "estimated_over_measured": ratio}


def _written(run: RunDirectory) -> dict[str, Any]:
    try:
        record: dict[str, Any] = read_json(run.estimate_json)
    except (OSError, ValueError):  # none yet, or edited
        return {}
    return record
