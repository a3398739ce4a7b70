"""How much each class weighs in the loss, so that rare ones aren't drowned by common ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError, Problem, raise_all


def balanced(labels: Sequence[Any], *, task: Task, num_labels: int) -> list[float]:
    """Weights that make every class count the same over the train rows.

    Args:
        labels: of the train rows, as the dataset gives them.
        task: multi_label weighs rows with a label against those without: without / with. Else rows (or words) /
            (classes × rows of the class). Source: King and Zeng 2001; scikit-learn's `class_weight="balanced"`.
        num_labels: of the label set. A class that no row has weighs 1: no label asks for it.
    """
    if task == "multi_label":
        having = np.asarray(list(labels), dtype=np.float64).sum(axis=0)
        lacking = len(labels) - having
        return [
            float(without / held) if held and without else 1.0 for held, without in zip(having, lacking, strict=True)
        ]
    ids = list(itertools.chain.from_iterable(labels)) if task == "token_classification" else list(labels)
    counts = np.bincount(np.asarray(ids, dtype=np.int64), minlength=num_labels)
    present = int((counts > 0).sum())
    return [len(ids) / (present * int(count)) if count else 1.0 for count in counts]


def by_name(weights: Mapping[str, float], names: Sequence[str]) -> list[float]:
    """The weights in the order of the ids; a class that isn't named weighs 1.

    Raises:
        ConfigError: a name that is no class, with the nearest.
    """
    problems = [
        Problem(f"trainer.class_weights.{name}={weight:g}: there is no such label.", fix=did_you_mean(name, names))
        for name, weight in weights.items()
        if name not in names
    ]
    raise_all(ConfigError, problems)
    return [float(weights.get(name, 1.0)) for name in names]
