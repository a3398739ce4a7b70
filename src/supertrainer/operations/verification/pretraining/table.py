"""All checks of a pretraining, one after the other, and what was reduced for them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from supertrainer.operations.verification.pretraining.apart import check_processes, two_processes
from supertrainer.operations.verification.pretraining.exporting import check_export
from supertrainer.operations.verification.pretraining.isolation import check_isolation
from supertrainer.operations.verification.pretraining.parametrization import check_parametrization
from supertrainer.operations.verification.pretraining.recomputation import check_recomputation
from supertrainer.operations.verification.pretraining.reduction import BATCH, LARGEST, STEPS, is_large
from supertrainer.operations.verification.pretraining.resuming import check_resumes
from supertrainer.operations.verification.pretraining.schedules import check_rates, check_schedule
from supertrainer.operations.verification.pretraining.splitting import check_micro_batches
from supertrainer.operations.verification.pretraining.streams import check_streams
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.rows import Row

log = logging.getLogger(__name__)


def checks(bench: PretrainWorkbench) -> Iterator[Row]:
    """Every row, as it is found."""
    with two_processes(bench) as together:
        for what, check in (
            ("micro-batches", check_micro_batches),
            ("recomputed activations", check_recomputation),
            ("isolated documents", check_isolation),
            ("streams", check_streams),
            ("the table of μP", check_parametrization),
            ("the schedule", check_schedule),
        ):
            log.info("verify: %s", what)
            yield from check(bench)
        log.info("verify: stopping, going on, seeds")
        with bench.trained("whole") as whole:
            yield from check_rates(bench, whole)
            yield from check_resumes(bench, whole)
            log.info("verify: the model that is written")
            yield from check_export(bench, whole)
        log.info("verify: two processes")
        yield from check_processes(bench, together)


def facts(bench: PretrainWorkbench) -> dict[str, Any]:
    """What was verified, for verify.json."""
    own, shape = (config.model.shape(bench.vocab_size) for config in (bench.own, bench.config))
    return {
        "model": f"a decoder of {own.num_layers} layers of width {own.hidden_size}",
        "task": "pretraining",
        "verified_on": f"a decoder of {shape.num_layers} layers of width {shape.hidden_size}",
        "vocabulary": shape.vocab_size,
        "steps": STEPS,
        "rows_of_a_step": BATCH,
        "sequence_length": bench.sequence_length,
    }


def setting(bench: PretrainWorkbench) -> Iterator[str]:
    """What was reduced, and what was left as it is."""
    own, shape = (config.model.shape(bench.vocab_size) for config in (bench.own, bench.config))
    yield (
        f"verified in steps of {BATCH} rows of {bench.sequence_length} tokens, in float32, with the config's own "
        "documents, tokenizer, optimizer and schedule"
    )
    sizes = f"{shape.num_layers} layers of width {shape.hidden_size:,}"
    if is_large(bench.own.model):
        yield (
            f"on a small decoder of its kind, {sizes}, for one of {own.num_layers} layers of width "
            f"{own.hidden_size:,}: that has more than {LARGEST // 10**6} million parameters beside its vocabulary"
            + (", and the weights of model.source fit no other" if bench.own.model.source else "")
        )
    else:
        yield f"on the config's own decoder, {sizes}"
