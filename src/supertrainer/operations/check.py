"""`operation=check`: what would go wrong later is found now, without training and without a GPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO, TypeVar

from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, Problem, SupertrainerError
from supertrainer.core.placement import placement
from supertrainer.models.base import count_parameters
from supertrainer.models.sources import find_source
from supertrainer.operations.scoring import build_dataset
from supertrainer.trainers.schema import accumulation_steps, planned_steps, steps_per_epoch

T = TypeVar("T")
SAMPLED_ROWS = 256  # of each split, through the real tokenizer


@dataclass
class CheckResult:
    """What a check found: facts in order of the way of a run, everything that is wrong, the Hub's commits by node."""

    facts: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    commits: dict[str, str] = field(default_factory=dict)


def run(config: Config, *, dataset: Any = None, stream: TextIO | None = None) -> None:
    """Checks a config and prints what was found, ending in `ready`.

    Args:
        dataset: the rows, where a caller goes on to use them.
        stream: where to print; None: stdout.

    Raises:
        ConfigError: with everything that is wrong.
    """
    result = check(config, dataset=dataset or build_dataset(config))
    stream = stream or sys.stdout
    print_facts(result, stream=stream)
    if result.problems:
        raise ConfigError(list(dict.fromkeys(result.problems)))
    print("ready", file=stream, flush=True)


def print_facts(result: CheckResult, *, stream: TextIO) -> None:
    """Prints what was found, a line each."""
    width = max((len(name) for name in result.facts), default=0)
    for name, text in result.facts.items():
        print(f"{name:<{width}}  {text}", file=stream)


def check_sources(config: Config) -> CheckResult:
    """Finds what `operation=infer` or `benchmark` reads: the trained model, and the dataset of a benchmark."""
    result = CheckResult()
    source = _try(lambda: find_source(config.model.source, revision=config.model.revision), result)
    if source is not None:
        result.facts["model"] = str(source.directory)
        result.commits |= {"model": source.commit} if source.commit else {}
    if config.operation == "benchmark":
        dataset = build_dataset(config)
        splits = _try(dataset.load, result)
        for split, rows in (splits or {}).items():
            result.facts[f"rows of {split}"] = f"{len(rows):,}"
        result.commits |= _commit_of(dataset) if splits is not None else {}
    return result


def check(config: Config, *, dataset: Any) -> CheckResult:
    """Reads the data, builds the model without weights, and computes what a training would do."""
    result = CheckResult()
    model = build(config.model, allowed=config.allow_targets)
    splits = _try(dataset.load, result)
    tokenizer = _try(model.tokenizer, result)
    if splits is not None:
        for split, rows in splits.items():
            result.facts[f"rows of {split}"] = f"{len(rows):,}"
        if dataset.label_names:
            result.facts["labels"] = ", ".join(dataset.label_names)
        result.commits |= _commit_of(dataset)
        if config.dataset.long_texts == "truncate" or tokenizer is not None:
            _try(lambda: _steps(config, _train_rows(config, dataset, tokenizer), result), result)
    if config.dataset.max_length is not None:
        _try(lambda: model.check_length(config.dataset.max_length), result)
    if splits is not None and tokenizer is not None:
        for split, rows in splits.items():
            sample = rows.select(range(min(len(rows), SAMPLED_ROWS)))
            encoded = _try(functools.partial(dataset.encode, sample, tokenizer), result)
            if encoded is not None:
                result.facts[f"tokens of {split}"] = _lengths(encoded)
    names = dataset.label_names if splits is not None else ("a", "b")
    skeleton = _try(
        lambda: model.build(
            label_names=names,
            seed=config.run.seed,
            model_kwargs=config.trainer.model_kwargs,
            peft_kwargs=config.trainer.peft_kwargs,
            bitsandbytes_kwargs=config.trainer.bitsandbytes_kwargs,
            device="meta",
        ),
        result,
    )
    if skeleton is not None:
        if model.source is not None and model.source.commit:
            result.commits["model"] = model.source.commit
        counts = count_parameters(skeleton)
        share = counts.trainable / max(counts.total, 1)
        result.facts["parameters"] = f"{counts.total:,}, of them trained {counts.trainable:,} ({share:.1%})"
    return result


def _commit_of(dataset: Any) -> dict[str, str]:
    commits = [facts["commit"] for facts in dataset.fingerprint().values() if "commit" in facts]
    return {"dataset": commits[0]} if commits else {}


def _steps(config: Config, rows: int, result: CheckResult) -> None:
    trainer = config.trainer
    size = trainer.global_batch_size
    accumulation = accumulation_steps(
        global_batch_size=size, micro_batch_size=trainer.micro_batch_size, num_processes=placement().processes
    )
    total = planned_steps(rows, global_batch_size=size, training_kwargs=trainer.training_kwargs)
    result.facts["optimizer steps"] = f"{total:,} ({steps_per_epoch(rows, global_batch_size=size):,} an epoch)"
    result.facts["rows of a step"] = (
        f"{size} = {trainer.micro_batch_size} × {accumulation} micro-batches × {placement().processes} processes"
    )


def _train_rows(config: Config, dataset: Any, tokenizer: Any) -> int:
    """Rows of an epoch: where long texts become windows, these have to be made to be counted."""
    rows = dataset.load()["train"]
    return len(rows) if config.dataset.long_texts == "truncate" else len(dataset.encode(rows, tokenizer))


def _lengths(encoded: Any) -> str:
    lengths = sorted(encoded["length"])
    middle, longest = lengths[len(lengths) // 2], lengths[-1]
    return f"median {middle}, longest {longest} (of {len(lengths):,} rows)"


def _try(step: Callable[[], T], result: CheckResult) -> T | None:
    """A step's value; None, and its problems kept, where it can't be done."""
    try:
        return step()
    except SupertrainerError as error:
        result.problems += error.problems
        return None
