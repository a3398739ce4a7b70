"""Run identity: what a run computes, apart from where, how often it saves and how a batch is split.

Fields marked `NotIdentity`, and passthrough keys listed as `not_identity`, are left out. The length of a run (epochs,
steps) belongs to its identity, and is told apart too, since a finished run may be extended to a greater one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from supertrainer.config.passthrough import Passthrough
from supertrainer.config.spine import Config
from supertrainer.config.strict import NotIdentity, StrictModel

LENGTH_KEYS = (
    "trainer.training_kwargs.num_train_epochs",
    "trainer.training_kwargs.max_steps",
    "trainer.max_steps",  # of a pretraining
)
_COMPONENTS_OF = {
    "train": ("model", "dataset", "trainer"),
    "export": ("model", "dataset", "trainer"),
    "check": ("model", "dataset", "trainer"),
    "verify": ("model", "dataset", "trainer"),
    "infer": ("model", "inferencer", "engine"),
    "benchmark": ("model", "dataset", "benchmark", "engine", "metric"),
}


def identity(config: Config) -> dict[str, Any]:
    """The identity of a run as flat, dotted keys in sorted order."""
    tree: dict[str, Any] = {"operation": config.operation, "run.seed": config.run.seed, "run.mode": config.run.mode}
    tree["run.deterministic"] = config.run.deterministic
    for name in _COMPONENTS_OF[config.operation]:
        node = vars(config)[name]
        if node is not None:
            tree |= {f"{name}.{key}": value for key, value in flat_keys(_identity_of(node))}
            tree |= node.further_identity(config)
    return dict(sorted(tree.items()))


def identity_hash(tree: Mapping[str, Any]) -> str:
    """Eight hex digits of an identity."""
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:8]


def run_name(config: Config) -> str:
    """The name of a run: `run.name`, else `<experiment>-<8 hex digits of the identity>`."""
    if config.run.name is not None:
        return config.run.name
    stem = (config.run.experiment or config.operation).replace("/", "-")
    stem += "-verify" if config.operation == "verify" else ""  # beside the run that is verified
    return f"{stem}-{identity_hash(identity(config))}"


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys in which two identities differ: key -> (before, after); None where a key is absent."""
    return {
        key: (before.get(key), after.get(key))
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key)
    }


def _identity_of(node: StrictModel) -> dict[str, Any]:
    dumped = node.model_dump(mode="json", by_alias=True)
    kept: dict[str, Any] = {}
    for name, field in type(node).model_fields.items():
        key = field.alias or name
        passthrough = next((marker for marker in field.metadata if isinstance(marker, Passthrough)), None)
        if any(marker is NotIdentity or isinstance(marker, NotIdentity) for marker in field.metadata):
            continue
        value = getattr(node, name)
        if isinstance(value, StrictModel):
            kept[key] = _identity_of(value)
        elif passthrough is not None and isinstance(dumped[key], dict):
            kept[key] = {inner: item for inner, item in dumped[key].items() if inner not in passthrough.not_identity}
        else:
            kept[key] = dumped[key]
    return kept


def flat_keys(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """A tree's values with their dotted keys; an empty mapping is a value."""
    for key, value in node.items():
        below = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            yield from flat_keys(value, below)
        else:
            yield below, value
