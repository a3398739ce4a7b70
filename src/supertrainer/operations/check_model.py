"""The check of the model and its training: weights, what will be trained, the library's own refusals, memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, raise_all
from supertrainer.core.placement import placement
from supertrainer.models.architecture import read_config
from supertrainer.models.base import count_parameters
from supertrainer.models.labels import label_names_of
from supertrainer.models.summary import adapted_lines, group_table
from supertrainer.models.weights import shape_problems, stored_tensors
from supertrainer.operations.check_result import CheckResult
from supertrainer.operations.memory_record import try_estimate
from supertrainer.trainers.class_weights import by_name
from supertrainer.trainers.memory import size_text
from supertrainer.trainers.rehearsal import rehearse

_ANY_LABELS = ("a", "b")  # where the data, which would say them, can't be read


def check_model(config: Config, model: Any, dataset: Any, result: CheckResult, *, longest: int | None) -> Any:
    """Builds what would be trained, without weights, and looks at everything that can be known of it.

    Args:
        dataset: loaded; None where it can't be.
        longest: the longest row in tokens; None where it isn't known.

    Returns:
        The model on the meta device; None where it can't be built.
    """
    names = tuple(dataset.label_names) if dataset is not None else _ANY_LABELS
    result.attempt(lambda: _class_weights(config, names) if dataset is not None else None)
    result.attempt(lambda: _rehearsal(config))
    result.attempt(lambda: build(config.tracker, allowed=config.allow_targets) if config.tracker else None)
    result.attempt(lambda: _weights(config, model, names, result))
    skeleton = result.attempt(lambda: _skeleton(config, model, names))
    if skeleton is None:
        return None
    if model.source is not None and model.source.commit:
        result.commits["model"] = model.source.commit
    _trained(config, skeleton, result)
    length = longest or config.dataset.max_length
    if length is not None:
        estimate = try_estimate(skeleton, config.trainer, length=length, there=placement())
        if isinstance(estimate, str):
            result.facts["memory"] = estimate
        else:
            result.take_memory(estimate)
    return skeleton


def _skeleton(config: Config, model: Any, names: tuple[str, ...], *, plain: bool = False) -> Any:
    trainer = config.trainer
    adapter = {} if plain else {"peft_kwargs": trainer.peft_kwargs, "bitsandbytes_kwargs": trainer.bitsandbytes_kwargs}
    return model.build(
        label_names=names, seed=config.run.seed, model_kwargs=trainer.model_kwargs, device="meta", **adapter
    )


def _weights(config: Config, model: Any, names: tuple[str, ...], result: CheckResult) -> None:
    """The source's files by their headers, and whether its head is kept."""
    if model.source is None:
        result.facts["weights"] = "untrained"
        return
    tensors = stored_tensors(model.source)
    size = sum(file.stat().st_size for file in model.source.directory.glob("*.safetensors"))
    formats = ", ".join(sorted({tensor.dtype for tensor in tensors.values()}))
    result.facts["weights"] = f"{len(tensors):,} tensors, {formats}, {size_text(size)}"
    if model.source.is_adapter:
        return
    per_label = model.label_parameters(names)
    plain = _skeleton(config, model, names, plain=True)
    tokens = len(model.tokenizer())
    raise_all(
        ConfigError, shape_problems(tensors, plain, free=frozenset(per_label), source=model.source, tokens=tokens)
    )
    if per_label:
        held = label_names_of(read_config(model.source.directory, trust_remote_code=config.model.trust_remote_code))
        kept = per_label & tensors.keys() and set(held) == set(names)
        given = f"the source's has {len(held)} labels ({', '.join(held[:5])}{', …' if len(held) > 5 else ''})"
        result.facts["head"] = "kept" if kept else "new" + (f"; {given}" if per_label & tensors.keys() else "")


def _trained(config: Config, skeleton: Any, result: CheckResult) -> None:
    counts = count_parameters(skeleton)
    share = counts.trainable / max(counts.total, 1)
    result.facts["parameters"] = f"{counts.total:,}, of them trained {counts.trainable:,} ({share:.1%})"
    method = config.trainer.method
    result.tables[f"what is trained (method: {method})"] = [
        ("modules", "parameters", "trained", "format", "how"),
        *(
            (row.group, f"{row.parameters:,}", f"{row.trainable:,}", row.dtype, row.method)
            for row in group_table(skeleton, method=method)
        ),
    ]
    if config.trainer.peft_kwargs is not None:
        result.facts["adapters on"] = "; ".join(adapted_lines(skeleton))


def _class_weights(config: Config, names: tuple[str, ...]) -> None:
    given = vars(config.trainer).get("class_weights")
    if isinstance(given, Mapping):
        by_name(given, names)


def _rehearsal(config: Config) -> None:
    """Ten steps stand for any number: how many there are is checked where the rows are."""
    trainer = config.trainer
    if placement().has_gpu and not torch.cuda.is_available():  # number formats of another machine
        kept = {k: v for k, v in trainer.training_kwargs.items() if k not in ("bf16", "fp16", "tf32", "bf16_full_eval")}
        trainer = trainer.model_copy(update={"training_kwargs": kept})
    rehearse(trainer, output_dir=Path(config.run.root) / "unused", seed=config.run.seed, steps=10)
