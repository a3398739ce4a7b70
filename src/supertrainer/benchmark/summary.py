"""What a report says in words and tables, before it becomes Markdown or a console's lines. No torch."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from supertrainer.benchmark.display import duration_text, score_text
from supertrainer.benchmark.results import BenchmarkResult, Report, Scores

SHOWN = (
    *(
        "accuracy",
        "micro_f1",
        "f1",
        "macro_f1",
        "weighted_f1",
        "subset_accuracy",
        "precision",
        "recall",
        "tag_accuracy",
    ),
    *("mse", "mae", "r2", "pearson", "spearman", "loss", "perplexity"),
    *("exact_match", "vqa_accuracy", "answer_f1", "chrf", "rouge_l"),
)
"""Scalars of a comparison, after the main one; all are in the JSON."""


def model_text(scores: Scores) -> str:
    """Source, size, and how much of it is trained."""
    model = scores.model
    share = model.trainable_parameters / max(model.parameters, 1)
    return (
        f"{model.source}, {model.parameters:,} parameters, "
        f"{model.trainable_parameters:,} trained ({share:.1%}, {model.method})"
    )


def data_text(scores: Scores) -> str:
    """Source, rows of each split, number of classes."""
    rows = ", ".join(f"{split} {count:,}" for split, count in scores.data.rows.items())
    classes = f" rows, {len(scores.data.labels)} classes" if scores.data.labels else " rows"
    return f"{scores.data.source}: {rows}{classes}"


def timing_text(scores: Scores) -> str:
    """Time, throughput and peak memory, as far as they were measured."""
    timing = scores.timing
    parts = [duration_text(timing.seconds)]
    parts += [f"{timing.rows_per_second:,.1f} rows/s"] if timing.rows_per_second is not None else []
    parts += [f"{timing.tokens_per_second:,.0f} tokens/s"] if timing.tokens_per_second is not None else []
    parts += [f"peak memory {timing.peak_memory_gib:.2f} GiB"] if timing.peak_memory_gib is not None else []
    return ", ".join(parts)


def comparison(scores: Report | BenchmarkResult) -> list[list[str]]:
    """A table: its header, the model on each split (the scored one first), then each baseline."""
    by_split = scores.metrics if isinstance(scores, Report) else {scores.split: scores.metrics}
    split = scored_split(scores)
    splits = sorted(by_split, key=lambda name: name != split)
    rows = [("this model", name, by_split[name]) for name in splits]
    rows += [(baseline.name, split or "", baseline.metrics) for baseline in scores.baselines]
    wanted = dict.fromkeys((scores.main_metric, *SHOWN))
    names = [name for name in wanted if any(name in metrics for _, _, metrics in rows)]
    header = ["", "split", *names]
    return [header, *([who, where, *(score_text(metrics.get(name)) for name in names)] for who, where, metrics in rows)]


def verdict(scores: Report | BenchmarkResult) -> str:
    """How far the model's main scalar is from each baseline's; empty where there is no baseline."""
    metrics = _scored_metrics(scores)
    name = scores.main_metric
    if name not in metrics:
        return ""
    parts = [
        f"{metrics[name] - baseline.metrics[name]:+.4f} against {baseline.name}"
        for baseline in scores.baselines
        if name in baseline.metrics
    ]
    return f"{name} {', '.join(parts)}" if parts else ""


def scored_split(scores: Report | BenchmarkResult) -> str | None:
    """The split that baselines, classes, confusion and samples belong to."""
    return scores.scored_split if isinstance(scores, Report) else scores.split


def class_table(scores: Scores) -> list[list[str]]:
    """A table: its header, then name, precision, recall, F1 and rows of each class."""
    rows = [
        [score.name, score_text(score.precision), score_text(score.recall), score_text(score.f1), f"{score.support:,}"]
        for score in scores.per_class
    ]
    return [["class", "precision", "recall", "F1", "rows"], *rows]


def type_table(scores: Scores) -> list[list[str]]:
    """A table: its header, then name and rows of each type, its scalars, and the main scalar of each baseline."""
    names = list(dict.fromkeys(name for one in scores.per_type for name in one.metrics))
    others = list(dict.fromkeys(name for one in scores.per_type for name in one.baselines))
    rows = [
        [
            one.name,
            f"{one.rows:,}",
            *(score_text(one.metrics.get(name)) for name in names),
            *(score_text(one.baselines.get(name)) for name in others),
        ]
        for one in scores.per_type
    ]
    return [["type", "rows", *names, *others], *rows]


def training_text(report: Report) -> str:
    """Steps done, checkpoints kept, the best one."""
    facts = [f"Optimizer steps: {report.steps:,}."]
    if report.checkpoint_steps:
        facts.append(f"Checkpoints kept: {', '.join(f'step {step:,}' for step in report.checkpoint_steps)}.")
    if report.best_step is not None:
        facts.append(f"Best by {report.main_metric}: step {report.best_step:,}.")
    return " ".join(facts)


def attempts_table(report: Report) -> list[list[str]]:
    """A line for each start of the run, from its start and end rows; one without an end runs still, or was killed."""
    merged: dict[JsonValue, dict[str, JsonValue]] = {}
    for row in report.attempts:
        event = "ended" if row.get("event") == "end" else "started"
        merged.setdefault(row.get("attempt"), {}).update(row | {event: row.get("time")})
    columns = ("attempt", "started", "ended", "host", "processes", "resumed_step", "outcome", "step", "reason")
    rows = [[_value_text(attempt.get(column)) for column in columns] for attempt in merged.values()]
    return [[column.replace("_", " ") for column in columns], *rows]


def _value_text(value: JsonValue) -> str:
    return "-" if value is None or value == "" else str(value)


def _scored_metrics(scores: Report | BenchmarkResult) -> Mapping[str, float]:
    if isinstance(scores, BenchmarkResult):
        return scores.metrics
    return scores.metrics.get(scores.scored_split or "", {})
