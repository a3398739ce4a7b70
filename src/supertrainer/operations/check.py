"""`operation=check`: what would go wrong later is found now, without training and without a GPU. Nothing is written."""

from __future__ import annotations

import sys
from typing import Any, TextIO

from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.config.tasks import is_pretraining
from supertrainer.core.errors import ConfigError
from supertrainer.models.sources import find_source
from supertrainer.operations import check_pretraining
from supertrainer.operations.check_model import check_model
from supertrainer.operations.check_place import check_cluster, check_directory, check_disk
from supertrainer.operations.check_result import CheckResult
from supertrainer.operations.check_rows import check_rows
from supertrainer.operations.check_text import print_result
from supertrainer.operations.scoring import build_dataset
from supertrainer.trainers.cadence import require_validation_rows
from supertrainer.trainers.checkpointing import checkpoint_bytes


def run(config: Config, *, dataset: Any = None, stream: TextIO | None = None) -> None:
    """Checks a config and prints what was found, ending in `ready`.

    Args:
        dataset: the rows, where a caller goes on to use them.
        stream: where to print; None: stdout.

    Raises:
        ConfigError: with everything that is wrong.
    """
    result = check(config, dataset=dataset or build_dataset(config))
    result.attempt(lambda: check_cluster(config, result))
    stream = stream or sys.stdout
    print_result(result, stream=stream)
    if result.problems:
        raise ConfigError(list(dict.fromkeys(result.problems)))
    print("ready", file=stream, flush=True)


def check_sources(config: Config) -> CheckResult:
    """Finds what `operation=infer` or `benchmark` reads: the trained model, and the dataset of a benchmark."""
    result = CheckResult()
    source = result.attempt(lambda: find_source(config.model.source, revision=config.model.revision))
    if source is not None:
        result.facts["model"] = str(source.directory)
        result.commits |= {"model": source.commit} if source.commit else {}
    if config.operation == "benchmark":
        dataset = build_dataset(config)
        splits = result.attempt(dataset.load)
        for split, rows in (splits or {}).items():
            result.facts[f"rows of {split}"] = f"{len(rows):,}"
        result.commits |= _commit_of(dataset) if splits is not None else {}
    return result


def check(config: Config, *, dataset: Any) -> CheckResult:
    """Reads the data, builds the model without weights, and computes what a training would do."""
    if is_pretraining(config):
        return check_pretraining.check(config, dataset=dataset)
    result = CheckResult()
    training = config.model_copy(update={"operation": "train"})  # what it is checked for
    model = build(config.model, allowed=config.allow_targets)
    result.attempt(lambda: check_directory(training, result))
    source = result.attempt(lambda: model.source)
    if source is not None:
        result.facts["model"] = str(source.directory)
    splits = result.attempt(dataset.load)
    reader = result.attempt(model.reader)
    before = len(result.problems)
    if config.dataset.max_length is not None:
        result.attempt(lambda: model.check_length(config.dataset.max_length))
    if len(result.problems) > before:
        reader = None  # every row would say the same again
    longest: int | None = None
    if splits is not None:
        result.commits |= _commit_of(dataset)
        longest = result.attempt(lambda: check_rows(config, dataset, reader, result))
        result.attempt(lambda: require_validation_rows(config.trainer.training_kwargs, splits))
        names = dataset.label_names
        result.attempt(lambda: build(config.metric, allowed=config.allow_targets, label_names=names))
    if longest is not None:
        result.attempt(lambda: model.check_length(longest))
    known = dataset if splits is not None else None
    skeleton = result.attempt(lambda: check_model(config, model, known, result, longest=longest))
    if skeleton is not None:
        result.attempt(lambda: check_disk(config, result, checkpoint=checkpoint_bytes(skeleton)))
    return result


def _commit_of(dataset: Any) -> dict[str, str]:
    commits = [facts["commit"] for facts in dataset.fingerprint().values() if "commit" in facts]
    return {"dataset": commits[0]} if commits else {}
