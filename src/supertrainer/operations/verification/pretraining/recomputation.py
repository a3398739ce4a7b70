"""Activations that are computed anew in the backward pass give the gradients of those that are kept, to the bit."""

from __future__ import annotations

from collections.abc import Iterator

from supertrainer.operations.verification.pretraining.reduction import with_trainer
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.rows import Row, same_bits
from supertrainer.operations.verification.workbench import differing


def check_recomputation(bench: PretrainWorkbench) -> Iterator[Row]:
    """Compares a step's gradients and weights with those of full and of selective recomputation."""
    kept = bench.step()
    for what in ("full", "selective"):
        again = bench.step(with_trainer(bench.drawn, activation_checkpointing=what))
        pairs = [differing(again.gradients, kept.gradients), differing(again.weights, kept.weights)]
        yield same_bits(
            f"activations: {what} recomputation = kept, gradients and weights",
            sum(count for count, _ in pairs) + (again.loss != kept.loss),
            sum(total for _, total in pairs) + 1,
        )
