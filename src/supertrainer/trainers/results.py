"""What a call of `train` came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from supertrainer.models.base import ParameterCounts


@dataclass(frozen=True)
class TrainResult:
    """The end of a call of `train`.

    Attributes:
        outcome: `interrupted` after a signal: the last step is saved, and the same command goes on from there.
        step: the last optimizer step that is done.
        first_step: the step that this call went on from, 0 for a new run; `step` where nothing was left to train.
        planned_steps: of the whole run.
        selected_step: the step whose weights are in the model directory; None after an interruption.
        metrics: validation scalars of the selected step, by name; empty where it was not evaluated.
        parameters: of the model.
        seconds: of training in this call, evaluations and checkpoints not counted.
        rows_per_second: in this call, over all processes; None where nothing was trained.
        tokens_per_second: likewise, padding not counted.
        peak_memory_gib: of the first process: of the GPU, or resident on a CPU.
    """

    outcome: Literal["done", "interrupted"]
    step: int
    first_step: int
    planned_steps: int
    selected_step: int | None
    metrics: dict[str, float]
    parameters: ParameterCounts
    seconds: float
    rows_per_second: float | None
    tokens_per_second: float | None
    peak_memory_gib: float
