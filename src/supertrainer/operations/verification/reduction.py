"""The config that is verified: the user's own, on a few rows and steps, in float32."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from supertrainer.config.spine import Config
from supertrainer.config.strict import StrictModel, thaw

N = TypeVar("N", bound=StrictModel)

BATCH = 4  # rows of a step: whole, as halves, one by one, and over two processes
TRAIN_ROWS = 11  # three steps an epoch, the last one short: its rows don't fill the micro-batches
OTHER_ROWS = 4
MAX_LENGTH = 128

# What changes how fast a number is computed, or in which format: everything here is float32, in this process.
_LEFT_OUT = (
    *("bf16", "fp16", "bf16_full_eval", "fp16_full_eval", "tf32", "half_precision_backend", "fp16_opt_level"),
    *("torch_compile", "torch_compile_backend", "torch_compile_mode"),
    *("dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers"),
    *("eval_steps", "eval_delay", "eval_on_start", "save_steps", "logging_first_step"),
)
_OF_SCHEDULES = ("lr_scheduler_kwargs", "warmup_ratio")
_OF_OPTIMIZERS = ("optim_args", "optim_target_modules")


def revised(node: N, **changed: Any) -> N:
    """A node with other values, validated as one that was written so.

    Raises:
        ValidationError: the values don't go together.
    """
    tree = node.model_dump(mode="json", by_alias=True) | changed
    return type(node).model_validate_json(json.dumps(tree))


def reduced(config: Config) -> Config:
    """The config on a few rows of at most 128 tokens, in steps of four, with the optimizer and schedule that it has."""
    trainer = config.trainer
    kwargs = {key: value for key, value in thaw(trainer.training_kwargs).items() if key not in _LEFT_OUT}
    evaluates = kwargs.get("eval_strategy", "no") != "no"
    kwargs |= {
        "num_train_epochs": 1,
        "max_steps": -1,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": OTHER_ROWS,
        "eval_strategy": "epoch" if evaluates else "no",
        "save_strategy": "no",
        "logging_strategy": "steps",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    attention = trainer.model_kwargs.attn_implementation
    model_kwargs = {
        "dtype": "float32",
        "attn_implementation": "auto" if attention == "flash_attention_2" else attention,  # it has no float32
    }
    quantized = {} if trainer.bitsandbytes_kwargs is None else thaw(trainer.bitsandbytes_kwargs)
    if quantized.get("load_in_4bit"):
        quantized["bnb_4bit_compute_dtype"] = "float32"
    node = revised(
        trainer,
        global_batch_size=BATCH,
        select="last",
        keep_last=TRAIN_ROWS,
        model_kwargs=model_kwargs,
        training_kwargs=kwargs,
        **({"bitsandbytes_kwargs": quantized} if quantized else {}),
    )
    run = config.run.model_copy(update={"deterministic": True})
    return config.model_copy(update={"run": run, "dataset": _few_rows(config.dataset), "trainer": node})


def without_dropout(config: Config, architecture: Any) -> Config:
    """The config with every probability of dropping something at 0.

    Args:
        architecture: config of the model that it builds.
    """
    key = "config" if config.model.source is None else "config_overrides"
    given = thaw(vars(config.model)[key] or {})
    model = revised(config.model, **{key: _at_zero(given, architecture.to_dict())})
    trainer = config.trainer
    if trainer.peft_kwargs is not None:
        trainer = revised(trainer, peft_kwargs=thaw(trainer.peft_kwargs) | {"lora_dropout": 0.0})
    return config.model_copy(update={"model": model, "trainer": trainer})


def _at_zero(given: dict[str, Any], architecture: dict[str, Any]) -> dict[str, Any]:
    """The given keys with every probability of dropping something at 0, of the parts of a model too."""
    found = dict(given)
    for key, value in architecture.items():
        if "drop" in key and isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = 0.0
        elif key.endswith("_config") and (inner := _at_zero(given.get(key) or {}, value or {})):
            found[key] = inner
    return found


def at_constant_rate(config: Config) -> Config:
    """The config without a schedule, which over three steps would hardly leave zero, and without evaluations."""
    kwargs = _without(config, _OF_SCHEDULES)
    kwargs |= {"lr_scheduler_type": "constant", "warmup_steps": 0, "eval_strategy": "no"}
    return config.model_copy(update={"trainer": revised(config.trainer, training_kwargs=kwargs)})


def with_sgd(config: Config, *, learning_rate: float) -> Config:
    """The config with plain SGD, whose step is the gradient: Adam's divides by its size, so that noise shows."""
    kwargs = _without(config, (*_OF_SCHEDULES, *_OF_OPTIMIZERS)) | {"optim": "sgd", "learning_rate": learning_rate}
    return at_constant_rate(
        config.model_copy(update={"trainer": revised(config.trainer, training_kwargs=kwargs)}),
    )


def with_training_kwargs(config: Config, **changed: Any) -> Config:
    """The config with other keys of `TrainingArguments`."""
    kwargs = thaw(config.trainer.training_kwargs) | changed
    return config.model_copy(update={"trainer": revised(config.trainer, training_kwargs=kwargs)})


def with_train_limit(config: Config, rows: int) -> Config:
    """The config with that many training rows."""
    limits = config.dataset.limits.model_dump() | {"train": rows}
    return config.model_copy(update={"dataset": revised(config.dataset, limits=limits)})


def in_random_order(config: Config) -> Config:
    """The config with rows in any order: sorted by length, so few of them might come in the same order every epoch."""
    return config.model_copy(update={"trainer": revised(config.trainer, batching="random")})


def _without(config: Config, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in thaw(config.trainer.training_kwargs).items() if key not in keys}


def _few_rows(dataset: Any) -> Any:
    wanted = {"train": TRAIN_ROWS, "validation": OTHER_ROWS, "test": OTHER_ROWS}
    limits = {split: min(count, dataset.limits.of(split) or count) for split, count in wanted.items()}
    own = None if dataset.holds_pictures else dataset.max_length  # a picture is never cut, and may be long by itself
    length = MAX_LENGTH
    cut = {"on_too_long": "left"} if "on_too_long" in vars(dataset) else {}  # its end is what is learnt of a long one
    while own is not None and length < own:
        try:
            return revised(dataset, limits=limits, max_length=length, **cut)
        except ValidationError:  # another key asks for more, such as the overlap of windows
            length *= 2
    return revised(dataset, limits=limits)
