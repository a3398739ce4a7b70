"""What a call of `train` came to."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.models.base import ParameterCounts, count_parameters
from supertrainer.trainers.session import Session
from supertrainer.trainers.throughput import peak_memory_gib


@dataclass(frozen=True)
class TrainResult:
    """The end of a call of `train`.

    Attributes:
        stopped_by: the signal that stopped it, after which the last step is saved; None where it came to its end.
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

    stopped_by: str | None
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


def result_of(
    module: nn.Module,
    session: Session | None,
    *,
    step: int,
    planned_steps: int,
    selected: Checkpoint | None = None,
) -> TrainResult:
    """The result of a call of `train`.

    Args:
        module: what was trained.
        session: how; None where nothing was left to train.
        step: the last step that is done.
        planned_steps: of the whole run.
        selected: the checkpoint whose weights are the trained model; None after an interruption.
    """
    first, seconds, rows, tokens = step, 0.0, 0, 0
    if session is not None:
        first, seconds = session.metrics.first_step, session.metrics.seconds
        rows = session.tokens.rows_up_to(step) - session.tokens.rows_up_to(first)
        tokens = session.tokens.up_to(step) - session.tokens.up_to(first)
    return TrainResult(
        stopped_by=session.stop.request.reason if session is not None and selected is None else None,
        step=step,
        first_step=first,
        planned_steps=planned_steps,
        selected_step=None if selected is None else selected.step,
        metrics={} if selected is None else dict(selected.extra["metrics"]),
        parameters=count_parameters(module),
        seconds=seconds,
        rows_per_second=rows / seconds if seconds else None,
        tokens_per_second=tokens / seconds if seconds else None,
        peak_memory_gib=peak_memory_gib(next(module.parameters()).device),
    )
