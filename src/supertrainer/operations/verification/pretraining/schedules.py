"""The learning rate at the edges of the config's own schedule, and in every group of a run."""

from __future__ import annotations

from collections.abc import Iterator

from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, Trained
from supertrainer.operations.verification.rows import Row, none_of, not_applicable, same_bits, within
from supertrainer.trainers.pretraining.schedule import decay_span, lr_share

BOUND = 1e-12
_MOST = 20_000  # updates that are looked at one by one; of longer runs as many, evenly


def check_schedule(bench: PretrainWorkbench) -> Iterator[Row]:
    """Looks at the first update, at both ends of warm-up and decay, and whether it rises and falls in between."""
    trainer = bench.own.trainer
    schedule, steps = trainer.schedule, trainer.max_steps
    peak = max(schedule.warmup_steps, 1)
    if peak > steps:
        yield not_applicable("schedule", f"the run ends in the warm-up, at update {steps:,} of {peak:,}")
        return
    yield _share(bench, 1, expected=1 / peak, what="the first")
    yield _share(bench, peak, expected=1.0, what="the end of the warm-up")
    first, last = decay_span(schedule, max_steps=steps)
    if first >= steps:
        yield _share(bench, steps, expected=1.0, what="the last one")
    else:
        if first > peak:
            yield _share(bench, first, expected=1.0, what="the last before the decay")
        if last <= steps:
            yield _share(bench, last, expected=schedule.final_share, what="the end of the decay")
    updates = sorted({*range(1, steps + 1, max(1, steps // _MOST)), peak, first, min(last, steps), steps})
    shares = [lr_share(schedule, update, max_steps=steps) for update in updates]
    pairs = list(zip(updates[1:], shares[1:], shares[:-1], strict=True))
    wrong = sum(share <= before if update <= peak else share > before for update, share, before in pairs)
    yield none_of(f"schedule: updates that don't rise up to {peak:,}, or rise later", wrong, max(len(pairs), 1))


def check_rates(bench: PretrainWorkbench, whole: Trained) -> Iterator[Row]:
    """Looks at the rate that each group of the optimizer had in each step of a run.

    Args:
        whole: has trained the reduced config.
    """
    trainer = bench.config.trainer
    peaks = [float(group["initial_lr"]) for group in bench.built().optimizer.param_groups]
    wrong = total = 0
    for step, rates in whole.rates.items():
        share = lr_share(trainer.schedule, step, max_steps=trainer.max_steps)
        wrong += sum(rate != peak * share for rate, peak in zip(rates, peaks, strict=True))
        wrong += whole.logged()[step]["lr"] != trainer.learning_rate * share
        total += len(peaks) + 1
    yield same_bits(f"schedule: rates of {len(peaks)} groups and of the log = peak × share", wrong, total)


def _share(bench: PretrainWorkbench, update: int, *, expected: float, what: str) -> Row:
    trainer = bench.own.trainer
    found = lr_share(trainer.schedule, update, max_steps=trainer.max_steps)
    return within(f"schedule: update {update:,}, {what}: {expected:.4g}", abs(found - expected), bound=BOUND)
