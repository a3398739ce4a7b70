"""What a call of the pretraining trainer came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PretrainResult:
    """The end of a call of `train`.

    Attributes:
        stopped_by: the signal that stopped it, empty where only another process got one; None where it came to its end.
        step: the last optimizer step that is done.
        first_step: the step that this call went on from, 0 for a new run; `step` where nothing was left to train.
        planned_steps: of the whole run.
        metrics: `loss` and `perplexity` of the validation rows at the last step; empty where they weren't evaluated.
        parameters: of the model.
        seconds: of training in this call, evaluations and the wait for checkpoints not counted.
        tokens_per_second: in this call, over all processes; None where nothing was trained.
        mfu: share of the devices' peak that went into the model's own arithmetic; None likewise.
        peak_memory_gib: of the first process: of the GPU, or resident on a CPU.
        skipped_steps: updates that the guard left out, in the whole run.
        odd_documents: null, empty, broken and huge documents that were met in the whole run; empty where nothing was
            left to train.
    """

    stopped_by: str | None
    step: int
    first_step: int
    planned_steps: int
    metrics: dict[str, float]
    parameters: int
    seconds: float
    tokens_per_second: float | None
    mfu: float | None
    peak_memory_gib: float
    skipped_steps: int
    odd_documents: dict[str, int]
