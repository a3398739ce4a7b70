"""How the rows of a step are split into micro-batches doesn't show in its loss, its gradients and their norm."""

from __future__ import annotations

from collections.abc import Iterator

from supertrainer.operations.verification.pretraining.reduction import BATCH
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, relative, share_of
from supertrainer.operations.verification.rows import Row, within

BOUND = 1e-5


def check_micro_batches(bench: PretrainWorkbench) -> Iterator[Row]:
    """Compares a step of the whole batch with the same rows in micro-batches of two and of one.

    The rows have unequal numbers of tokens to predict, where documents are isolated.
    """
    whole = bench.step()
    for micro in (2, 1):
        split = bench.step(micro=micro)
        what = f"micro-batches of {micro} = {BATCH} rows at once"
        yield within(f"{what}: loss", relative(split.loss, whole.loss), bound=BOUND)
        yield within(f"{what}: gradients", share_of(split.gradients, whole.gradients), bound=BOUND)
        yield within(f"{what}: the norm that clips", relative(split.grad_norm, whole.grad_norm), bound=BOUND)
