"""`operation=train` of a model from scratch: train, export, let plain transformers go on with some prompts, report."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Sample, Timing
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.core.attempts import plan_attempt
from supertrainer.core.distributed import is_main, on_main_then_broadcast
from supertrainer.core.files import write_json
from supertrainer.core.logging import tame_libraries
from supertrainer.core.run_directory import RunDirectory
from supertrainer.models.loading import quiet_transformers
from supertrainer.operations import check
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.reporting import finish
from supertrainer.operations.scoring import build_dataset
from supertrainer.operations.train import require_same_data, say_stopped
from supertrainer.trainers.pretrain import PretrainTrainer
from supertrainer.trainers.pretraining.results import PretrainResult

COUNTED_TOKENS = 1_000_000  # for the baseline
DEFINITIONS = {
    "loss": "mean cross-entropy of a held-out token given those before it in its document, in nats",
    "perplexity": "e to the loss",
}


def run(config: Config, open_run: OpenRun) -> None:
    """Trains from where the run stands, and reports. Every process calls it.

    Raises:
        DataError: the data is faulty, or has changed since the run started.
    """
    tame_libraries()  # their loggers were set anew by the imports above
    dataset = build_dataset(config)
    if config.run.mode == "sanity_check":
        on_main_then_broadcast(lambda: check.run(config, dataset=dataset))
    on_main_then_broadcast(lambda: _record_data(open_run.directory, dataset))
    trainer = build_pretrainer(config, open_run.directory, dataset=dataset, attempt=open_run.attempt)
    if is_main():
        plan_attempt(open_run.directory, number=open_run.attempt, planned_steps=trainer.planned_steps)
    result = trainer.train()
    open_run.step = result.step
    if result.stopped_by is not None:
        say_stopped(open_run, stopped_by=result.stopped_by, step=result.step, planned_steps=result.planned_steps)
        return
    steps = trainer.store.steps()
    on_main_then_broadcast(lambda: _report(config, open_run, dataset=dataset, result=result, steps=steps))


def build_pretrainer(config: Config, run: RunDirectory, *, dataset: Any, attempt: int = 1) -> PretrainTrainer:
    """The trainer with its model and tracker.

    Args:
        dataset: the streams.
        attempt: number of this start of the run.
    """
    trainer: PretrainTrainer = build(
        config.trainer,
        allowed=config.allow_targets,
        run=run,
        model=build(config.model, allowed=config.allow_targets),
        dataset=dataset,
        tracker=build(config.tracker, allowed=config.allow_targets),
        seed=config.run.seed,
        deterministic=config.run.deterministic,
        attempt=attempt,
    )
    return trainer


def _record_data(directory: RunDirectory, dataset: Any) -> None:
    """Writes which files are read to data.json, or refuses ones that aren't what this run started with.

    Raises:
        DataError: with the files that changed.
    """
    sources = require_same_data(directory, dataset)
    write_json(directory.data_json, {"sources": sources, "documents": dataset.facts()})


def _report(config: Config, open_run: OpenRun, *, dataset: Any, result: PretrainResult, steps: list[int]) -> None:
    shape = build(config.model, allowed=config.allow_targets).shape(len(dataset.tokenizer()))
    documents = {name: source["documents"] for name, source in dataset.facts().items()}
    shared: dict[str, Any] = {
        "model": ModelFacts(
            source=f"a decoder of {shape.num_layers} layers of width {shape.hidden_size}",
            parameters=result.parameters,
            trainable_parameters=result.parameters,
            method=f"pretraining, {config.model.parametrization.name}",
        ),
        "data": DataFacts(
            source=", ".join(source.path for source in config.dataset.sources.values()),
            rows={name: count for name, count in documents.items() if count is not None},
        ),
        "main_metric": "loss",
        "metrics": {"validation": result.metrics} if result.metrics else {},
        "scored_split": "validation" if result.metrics else None,
        "definitions": DEFINITIONS,
        "baselines": (_unigram(config, dataset),) if result.metrics else (),
        "samples": tuple(_continued(config, open_run.directory)),
        "timing": Timing(
            seconds=result.seconds,
            tokens_per_second=result.tokens_per_second,
            peak_memory_gib=result.peak_memory_gib,
        ),
        "steps": result.step,
        "checkpoint_steps": tuple(steps),
        "notes": tuple(_notes(result)),
    }
    finish(config, open_run, shared=shared)


def _unigram(config: Config, dataset: Any) -> Baseline:
    """Every held-out token told by how common it is among the first tokens that are trained on."""
    started = time.perf_counter()
    trainer = config.trainer
    counts = np.ones(len(dataset.tokenizer()))  # one of each, so that none has probability 0
    with contextlib.closing(
        dataset.open(sequence_length=trainer.sequence_length, global_batch_size=trainer.global_batch_size)
    ) as stream:
        for _ in range(
            min(trainer.max_steps, -(-COUNTED_TOKENS // (trainer.global_batch_size * trainer.sequence_length)))
        ):
            counts += _token_counts(stream.next_step(), size=len(counts))
    wanted = _token_counts(
        dataset.validation(sequence_length=trainer.sequence_length, rows=trainer.eval_rows), size=len(counts)
    )
    loss = float(-(wanted * np.log(counts / counts.sum())).sum() / wanted.sum())
    return Baseline(
        name="unigram",
        method=f"each token by its share of {int(counts.sum()) - len(counts):,} tokens that are trained on",
        metrics={"loss": loss, "perplexity": math.exp(loss)},
        fitted_rows=0,
        seconds=time.perf_counter() - started,
    )


def _token_counts(rows: Any, *, size: int) -> Any:
    targets = rows.targets
    return np.bincount(targets[targets >= 0], minlength=size)


def _notes(result: PretrainResult) -> Iterator[str]:
    yield "model/ is a plain transformers model: the samples are its own, generated from there"
    if odd := ", ".join(f"{count:,} {kind}" for kind, count in result.odd_documents.items() if count):
        yield f"odd documents that were met: {odd} (dataset.on_… says what becomes of them)"
    if result.skipped_steps:
        yield f"{result.skipped_steps:,} updates were skipped by the guard: not finite, or far above those before them"
    if result.mfu is not None:
        yield f"{result.mfu:.1%} of the devices' peak went into the model's own arithmetic"


def _continued(config: Config, directory: RunDirectory) -> Iterator[Sample]:
    """The prompts, continued by plain transformers from the model that was written."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trainer = config.trainer
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(directory.model)
        model = AutoModelForCausalLM.from_pretrained(directory.model)
    drawn = {"do_sample": True, "temperature": trainer.sample_temperature} if trainer.sample_temperature else {}
    for number, prompt in enumerate(trainer.sample_prompts):
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.run.seed + number)
            made = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=trainer.sample_tokens, use_cache=True, **drawn
            )
        yield Sample(row=number, text=prompt, predicted=tokenizer.decode(made[0, ids.shape[1] :]))
