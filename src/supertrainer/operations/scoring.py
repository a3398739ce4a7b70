"""Scoring a trained model on a labelled split, for a benchmark and at the end of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from supertrainer.benchmark.results import BenchmarkResult, DataFacts, ModelFacts
from supertrainer.config.build import build
from supertrainer.config.spine import Config
from supertrainer.config.tasks import Task, task_of
from supertrainer.core.errors import ConfigError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.data.chat.template import TEMPLATE_KEY, require_same_template
from supertrainer.metrics.schema import METRIC_OPTIONS
from supertrainer.models.base import count_parameters
from supertrainer.models.saving import TrainedModel
from supertrainer.models.sources import Source, find_source
from supertrainer.operations.labelled import to_be_scored, to_learn_from
from supertrainer.operations.llm_scoring import score_answers
from supertrainer.trainers.base import TaskTrainer
from supertrainer.trainers.throughput import peak_memory_gib

AS_TRAINED = "dataset.chat_template=null dataset.template_date=null and no dataset.template_kwargs: as it was trained."


def trained_source(config: Config, run: RunDirectory) -> Source:
    """Where the trained model is: in the run itself after training, else what `model.source` names.

    Raises:
        ConfigError: the config names an untrained model.
    """
    if config.operation == "train":
        return find_source(str(run.model))
    if config.model.source is None:
        raise ConfigError(
            f"model.source=null: operation={config.operation} needs a trained model.", fix="model.source=runs/NAME."
        )
    return find_source(config.model.source, revision=config.model.revision)


def build_dataset(config: Config, *, label_names: Sequence[str] | None = None, task: Task | None = None) -> Any:
    """The dataset.

    Args:
        label_names: of a trained model, where its ids count.
        task: the head of a trained model; None: the one that the config trains.
    """
    head = {} if config.model is None or "task" not in vars(config.model) else {"task": task or task_of(config)}
    return build(config.dataset, allowed=config.allow_targets, seed=config.run.seed, label_names=label_names, **head)


def require_task(config: Config, trained: TrainedModel) -> None:
    """Refuses a model whose head isn't the one that the config names or scores.

    Raises:
        ConfigError: with the option that fits.
    """
    named = vars(config.model).get("task")
    if named not in (None, trained.task):
        raise ConfigError(
            f"model.task={named}, and {config.model.source} was trained for {trained.task}.", fix="model.task=null."
        )
    scored = None if config.metric is None else config.metric.task
    if config.operation == "benchmark" and scored and METRIC_OPTIONS[scored] != METRIC_OPTIONS[trained.task]:
        raise ConfigError(
            f"metric={METRIC_OPTIONS[scored]}, and {config.model.source} was trained for {trained.task}.",
            fix=f"metric={METRIC_OPTIONS[trained.task]}.",
        )


def build_trainer(
    config: Config, run: RunDirectory, *, dataset: Any, seed: int | None = None, attempt: int = 1
) -> TaskTrainer:
    """The trainer with its model, metric and tracker.

    Args:
        dataset: the rows.
        seed: another one than the config's.
        attempt: number of this start of the run.
    """
    allowed = config.allow_targets
    trainer: TaskTrainer = build(
        config.trainer,
        allowed=allowed,
        run=run,
        model=build(config.model, allowed=allowed),
        dataset=dataset,
        metric=build(config.metric, allowed=allowed, label_names=dataset.label_names),
        tracker=build(config.tracker, allowed=allowed),
        seed=config.run.seed if seed is None else seed,
        deterministic=config.run.deterministic,
        attempt=attempt,
    )
    return trainer


def build_engine(config: Config, run: RunDirectory) -> Any:
    """The engine with the trained model."""
    return build(config.engine, allowed=config.allow_targets, source=trained_source(config, run))


def score(config: Config, run: RunDirectory, *, split: str, method: str, dataset: Any = None) -> BenchmarkResult:
    """Scores a split with the model as it is read back from its files; writes benchmark.json and predictions.jsonl.

    Args:
        split: which rows.
        method: how the model was fine-tuned, for the result.
        dataset: the rows, where they are read already.

    Raises:
        ConfigError: the dataset has no such split.
        DataError: its rows are faulty, or have labels that the model doesn't know.
    """
    engine = build_engine(config, run)
    trained = engine.trained
    require_task(config, trained)
    if dataset is None or tuple(dataset.label_names) != trained.label_names:
        dataset = build_dataset(config, label_names=trained.label_names, task=trained.task)
    splits = dataset.load()
    if split not in splits:
        raise ConfigError(
            f"benchmark.split={split}: the dataset has no such split.",
            fix=f"one of: {', '.join(splits)}; dataset.splits.{split}=0.1 makes one of some train rows.",
        )
    rows = dataset.model_rows(split, trained.reader)
    if trained.task in _OF_ANSWERS:
        require_same_template(trained.noted.get(TEMPLATE_KEY), trained.tokenizer, fix=AS_TRAINED)
    counts = count_parameters(trained.model)
    facts: dict[str, Any] = {
        "metric": build(config.metric, allowed=config.allow_targets, label_names=trained.label_names),
        "model": ModelFacts(
            source=config.model.source or f"{config.model.config['model_type']} from scratch",
            parameters=counts.total,
            trainable_parameters=counts.trainable,
            method=method,
        ),
        "data": data_facts(config, dataset),
    }
    if trained.task in _OF_ANSWERS:
        scored = _OF_ANSWERS[trained.task]
        return scored(config, run, split=split, engine=engine, dataset=dataset, rows=rows, facts=facts)
    benchmark = build(
        config.benchmark.model_copy(update={"split": split}),
        allowed=config.allow_targets,
        train=to_learn_from(dataset, trained.tokenizer) if "train" in splits else None,
        task=trained.task,
        **facts,
    )
    result: BenchmarkResult = benchmark.run(
        to_be_scored(dataset, split, rows, trained.tokenizer),
        predictions=engine.logits(rows),
        directory=run,
        count_tokens=lambda: engine.tokens,
        peak_memory_gib=lambda: peak_memory_gib(engine.device),
    )
    return result


def _score_pictures(config: Config, run: RunDirectory, **how: Any) -> BenchmarkResult:
    from supertrainer.operations.mllm_scoring import score_pictures

    return score_pictures(config, run, **how)


_OF_ANSWERS: dict[Task, Callable[..., BenchmarkResult]] = {
    "causal_lm": score_answers,
    "image_text_to_text": _score_pictures,
}
"""What scores the tasks whose outputs are texts: none of them has one logit a class."""


def data_facts(config: Config, dataset: Any) -> DataFacts:
    """Which rows a run reads."""
    splits = dataset.load()
    names: Sequence[str] = dataset.label_names
    return DataFacts(
        source=config.dataset.source, rows={split: len(rows) for split, rows in splits.items()}, labels=tuple(names)
    )
