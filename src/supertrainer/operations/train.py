"""`operation=train`: fine-tune, save, read back, score, report."""

from __future__ import annotations

import functools
import logging
from typing import Any

from supertrainer.benchmark.results import ModelFacts, Report, Timing
from supertrainer.config.spine import Config
from supertrainer.core.attempts import plan_attempt
from supertrainer.core.distributed import is_main, on_main_then_broadcast
from supertrainer.core.errors import ConfigError, DataError, raise_all
from supertrainer.core.files import read_json, write_json
from supertrainer.core.job import ask_for_requeue, has_waiting_script
from supertrainer.core.placement import placement
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations import check
from supertrainer.operations.memory_record import record_estimate, record_measured, start_of_memory, try_estimate
from supertrainer.operations.opening import OpenRun
from supertrainer.operations.reporting import finish
from supertrainer.operations.scoring import build_dataset, build_trainer, data_facts, score
from supertrainer.operations.untrained import nothing_trained
from supertrainer.trainers.devices import training_device
from supertrainer.trainers.rehearsal import length_problems
from supertrainer.trainers.results import TrainResult
from supertrainer.trainers.steps import steps_per_epoch

log = logging.getLogger(__name__)


def run(config: Config, open_run: OpenRun) -> None:
    """Trains from where the run stands, and reports. Every process calls it.

    Raises:
        DataError: the data is faulty, or has changed since the run started.
    """
    dataset = build_dataset(config)
    if config.run.mode == "sanity_check":
        on_main_then_broadcast(lambda: check.run(config, dataset=dataset))
    dataset.load()
    on_main_then_broadcast(lambda: record_data(open_run.directory, dataset))
    trainer = build_trainer(config, open_run.directory, dataset=dataset, attempt=open_run.attempt)
    if is_main():
        plan_attempt(open_run.directory, number=open_run.attempt, planned_steps=trainer.planned_steps)
    _require_length(config, trainer)
    on_main_then_broadcast(functools.partial(_estimate, config, open_run.directory, trainer))
    start = start_of_memory(training_device())
    result: TrainResult = trainer.train()
    if is_main() and result.first_step < result.step:
        record_measured(open_run.directory, start=start, peak=result.peak_memory_gib, attempt=open_run.attempt)
    open_run.step = result.step
    if result.stopped_by is not None:
        say_stopped(open_run, stopped_by=result.stopped_by, step=result.step, planned_steps=result.planned_steps)
        return
    store = trainer.store
    del trainer  # the model is read back from its files: what is scored is what was saved
    on_main_then_broadcast(lambda: _report(config, open_run, dataset=dataset, result=result, store=store))


def _require_length(config: Config, trainer: Any) -> None:
    """Refuses a warm-up or a cadence that goes beyond the run, but where a mode has shortened it."""
    if config.run.mode == "full":
        steps = trainer.planned_steps
        per_epoch = steps_per_epoch(trainer.train_rows, global_batch_size=config.trainer.global_batch_size)
        raise_all(ConfigError, length_problems(config.trainer.training_kwargs, steps=steps, per_epoch=per_epoch))


def _estimate(config: Config, run: RunDirectory, trainer: Any) -> None:
    """Writes the memory that is expected, for the rows that were read; a run that goes on keeps what was measured."""
    rows = trainer.rows("train")
    skeleton = trainer.model.build(
        label_names=trainer.dataset.label_names,
        seed=config.run.seed,
        model_kwargs=config.trainer.model_kwargs,
        peft_kwargs=config.trainer.peft_kwargs,
        bitsandbytes_kwargs=config.trainer.bitsandbytes_kwargs,
        device="meta",
    )
    longest = int(rows.lengths.max())
    record_estimate(run, try_estimate(skeleton, config.trainer, length=longest, there=placement()))


def say_stopped(open_run: OpenRun, *, stopped_by: str, step: int, planned_steps: int) -> None:
    """Says how a run goes on that was stopped at a checkpoint: by its job, or by the same command.

    Args:
        stopped_by: the signal.
        step: the last one that is done and saved.
        planned_steps: of the whole run.
    """
    open_run.reason = stopped_by
    open_run.outcome = "saved" if has_waiting_script() else "interrupted"
    how = "its job goes on, unless it was cancelled" if has_waiting_script() else "the same command goes on"
    log.warning("interrupted at step %d of %d, saved: %s", step, planned_steps, how)
    if has_waiting_script() and is_main():
        ask_for_requeue(open_run.directory, reason=open_run.reason, step=step)


def record_data(directory: RunDirectory, dataset: Any) -> None:
    """Writes what was read to data.json, or refuses data that isn't what this run started with.

    Raises:
        DataError: with the files that changed.
    """
    sources = require_same_data(directory, dataset)
    report = dataset.load().report.as_dict()
    write_json(directory.data_json, {"sources": sources, "labels": list(dataset.label_names), **report})


def require_same_data(directory: RunDirectory, dataset: Any) -> dict[str, Any]:
    """What the dataset read, by file, if it is what the run read before or nothing was trained on that.

    Raises:
        DataError: with the files that changed.
    """
    sources = {name: _content(facts) for name, facts in dataset.fingerprint().items()}
    if directory.data_json.is_file() and not nothing_trained(directory):
        before = read_json(directory.data_json)["sources"]
        changed = sorted(name for name in before.keys() | sources.keys() if before.get(name) != sources.get(name))
        if changed:
            shown = ", ".join(changed[:5]) + (f", … ({len(changed)} in all)" if len(changed) > 5 else "")
            raise DataError(
                f"the data of {directory.path} has changed since it was started: {shown}.",
                why="a run that goes on with other rows is neither the old run nor a new one.",
                fix="put the old files back, or run.fresh=true to start with the new ones.",
            )
    return sources


def _content(facts: Any) -> Any:
    """What of a source's facts says what is in it; a copied file has another time."""
    return {key: value for key, value in facts.items() if key != "mtime_ns"}


def _report(config: Config, open_run: OpenRun, *, dataset: Any, result: TrainResult, store: Any) -> None:
    method = config.trainer.method
    splits = dataset.load()
    split = next((name for name in ("test", "validation") if name in splits), "train")
    scores = score(config, open_run.directory, split=split, method=method, dataset=dataset)
    metrics = {"validation": result.metrics} if result.metrics else {}
    metrics[split] = dict(scores.metrics)
    shared: dict[str, Any] = {
        name: getattr(scores, name) for name in Report.model_fields if name in type(scores).model_fields
    }
    shared |= {
        "metrics": metrics,
        "scored_split": split,
        "model": ModelFacts(
            source=scores.model.source,
            parameters=result.parameters.total,
            trainable_parameters=result.parameters.trainable,
            method=method,
        ),
        "data": data_facts(config, dataset),
        "timing": Timing(
            seconds=result.seconds,
            rows_per_second=result.rows_per_second,
            tokens_per_second=result.tokens_per_second,
            peak_memory_gib=result.peak_memory_gib,
        ),
        "steps": result.step,
        "checkpoint_steps": tuple(store.steps()),
        "best_step": result.selected_step if config.trainer.select == "best" else None,
        "notes": tuple(splits.report.notes),
    }
    finish(config, open_run, shared=shared)
