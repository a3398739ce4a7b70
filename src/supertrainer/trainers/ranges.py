"""Numbers of `training_kwargs` that the library would take, and fail on at its first step or later. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from supertrainer.core.errors import Problem

_AT_LEAST = {
    "learning_rate": 0.0,
    "weight_decay": 0.0,
    "max_grad_norm": 0.0,
    "warmup_steps": 0.0,
    "adam_epsilon": 0.0,
    "label_smoothing_factor": 0.0,
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "logging_steps": 0.0,
    "eval_steps": 0.0,
    "save_steps": 0.0,
    "dataloader_num_workers": 0,
}
_BELOW_ONE = ("adam_beta1", "adam_beta2", "label_smoothing_factor")


def range_problems(training_kwargs: Mapping[str, Any], *, path: str) -> Iterator[Problem]:
    """Every number outside the range in which training can work; also NaN and infinities, and a length of no step."""
    for key, value in training_kwargs.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        where = f"{path}.{key}={value}"
        if not math.isfinite(value):
            yield Problem(f"{where}: is no finite number.", fix="give a finite number.")
        elif key in _AT_LEAST and value < _AT_LEAST[key]:
            yield Problem(f"{where}: is below {_AT_LEAST[key]:g}.", fix=f"give {_AT_LEAST[key]:g} or more.")
        elif key in _BELOW_ONE and not 0 <= value < 1:
            yield Problem(f"{where}: is not between 0 and 1.", fix="give a number from 0 to below 1.")
    epochs, steps = training_kwargs.get("num_train_epochs", 3), training_kwargs.get("max_steps", -1)
    if isinstance(epochs, int | float) and isinstance(steps, int) and epochs <= 0 and steps <= 0:
        yield Problem(
            f"{path}.num_train_epochs={epochs}: asks for no step at all.", fix="num_train_epochs above 0, or max_steps."
        )
