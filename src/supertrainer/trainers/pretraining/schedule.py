"""The learning rate of every update as a share of its peak: a function of the update's number. No torch."""

from __future__ import annotations

import math

from supertrainer.trainers.pretrain_schema import ScheduleConfig


def lr_share(schedule: ScheduleConfig, update: int, *, max_steps: int) -> float:
    """What the peak is multiplied by in an update.

    The rise is linear and ends with the peak at update `warmup_steps` (at the first one without a warm-up), so no
    update has a rate of 0 before it. The last update of a decay has exactly `final_share`; the one before its first
    still has the peak.

    Args:
        schedule: shape, warm-up, decay.
        update: from 1 to `max_steps`.
        max_steps: of the whole run.
    """
    if update < schedule.warmup_steps:
        return update / schedule.warmup_steps
    first, last = decay_span(schedule, max_steps=max_steps)
    if update <= first:
        return 1.0
    passed = min((update - first) / (last - first), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * passed)) if schedule.name == "cosine" else 1 - passed
    return schedule.final_share + (1 - schedule.final_share) * left


def decay_span(schedule: ScheduleConfig, *, max_steps: int) -> tuple[int, int]:
    """The last update with the peak and the first with `final_share`; both `max_steps` where nothing decays."""
    peak = max(schedule.warmup_steps, 1)
    match schedule.name:
        case "constant":
            return max_steps, max_steps
        case "wsd":
            return max(max_steps - (schedule.decay_steps or 0), peak), max_steps
    if schedule.decay_steps == 0:
        return max_steps, max_steps
    return peak, max_steps if schedule.decay_steps is None else peak + schedule.decay_steps


def common_steps(schedule: ScheduleConfig, one: int, other: int) -> int:
    """How many first updates have the same rates in runs of one length and another."""
    shorter = min(one, other)
    if one == other:
        return shorter
    if schedule.depends_on_length:
        return min(max(schedule.warmup_steps, 1), shorter)
    if schedule.name != "wsd":
        return shorter
    return min(decay_span(schedule, max_steps=one)[0], decay_span(schedule, max_steps=other)[0])
