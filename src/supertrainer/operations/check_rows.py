"""The check of the rows: counts, labels, lengths of every split, steps, tokens, a few rows as the model sees them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from supertrainer.config.spine import Config
from supertrainer.core.placement import placement
from supertrainer.data.batching import BatchPlan, deal, padding_share
from supertrainer.data.packing import pack_lengths
from supertrainer.data.preview import LengthStats, bars, length_stats
from supertrainer.operations.check_result import CheckResult
from supertrainer.trainers.rehearsal import length_problems
from supertrainer.trainers.steps import accumulation_steps, planned_steps, steps_per_epoch

MOST_ROWS = 50_000  # of a split through the tokenizer: half a minute of one core
SHOWN_ROWS = 3
SHOWN_LABELS = 30


def check_rows(config: Config, dataset: Any, tokenizer: Any, result: CheckResult) -> int | None:
    """Checks the rows.

    Args:
        tokenizer: the model's; None where there is none.

    Returns:
        The longest row of all splits in tokens, packs included; None where it isn't known.
    """
    splits = dataset.load()
    _counts(splits.report, result)
    _labels(splits.report.labels, result)
    if tokenizer is None:
        return None
    stats: dict[str, LengthStats] = {}
    for split in splits:
        found = result.attempt(functools.partial(_lengths, dataset, split, tokenizer))
        if found is not None:
            stats[split] = found
            result.facts[f"tokens of {split}"] = found.text()
    longest = [found.longest for found in stats.values()]
    if "train" in stats:
        longest.append(result.attempt(lambda: _steps(config, dataset, tokenizer, stats["train"], result)) or 0)
        result.attempt(lambda: _views(dataset, tokenizer, stats, result))
    return max(longest, default=None)


def _counts(report: Any, result: CheckResult) -> None:
    for split, count in report.rows.items():
        text = f"{count:,}"
        reasons = [f"{dropped:,} {why}" for why, dropped in report.dropped.get(split, {}).items()]
        text += f"; dropped: {', '.join(reasons)}" if reasons else ""
        text += f"; {report.repeated[split]:,} repeat a text of the split" if split in report.repeated else ""
        text += f"; {report.limited[split]:,} left out by dataset.limits" if split in report.limited else ""
        result.facts[f"rows of {split}"] = text


def _labels(labels: Mapping[str, Mapping[str, int]], result: CheckResult) -> None:
    """A table of the labels of each split, with the share of the greatest and what is missing."""
    for split, counts in labels.items():
        if not counts:
            continue
        total, many = sum(counts.values()), len(counts) > SHOWN_LABELS
        shown = dict(sorted(counts.items(), key=lambda item: -item[1])[:SHOWN_LABELS]) if many else counts
        rest = f" (the {SHOWN_LABELS} most frequent of {len(counts)})" if many else ""
        result.tables[f"labels of {split}{rest}"] = [("label", "rows", "share", ""), *bars(shown, total=total)]
        name, most = max(counts.items(), key=lambda item: item[1])
        text = f"{len(counts)} labels; the most frequent, {name}, on {most / max(total, 1):.1%}"
        missing = [label for label, count in counts.items() if not count]
        text += f"; none of: {', '.join(missing[:10])}{' …' if len(missing) > 10 else ''}" if missing else ""
        result.facts[f"labels of {split}"] = text


def _lengths(dataset: Any, split: str, tokenizer: Any) -> LengthStats:
    rows = dataset.load()[split]
    total = len(rows)
    if total > MOST_ROWS:
        rows = rows.select(np.linspace(0, total - 1, MOST_ROWS).astype(int).tolist())
    return length_stats(dataset.encode(rows, tokenizer), of=total)


def _steps(config: Config, dataset: Any, tokenizer: Any, stats: LengthStats, result: CheckResult) -> int:
    """Steps, epochs and tokens; rows are counted as training counts them: windows of long texts each by itself, packs.

    Returns:
        The longest of these rows in tokens; the room in a pack, or 0, where not all texts were looked at.
    """
    trainer, there, size = config.trainer, placement(), config.trainer.global_batch_size
    lengths = _train_lengths(config, dataset, tokenizer, stats)
    rows = stats.of if lengths is None else len(lengths)
    if lengths is None and trainer.packs:  # the fewest that they can fill
        rows = math.ceil(stats.tokens * stats.of / stats.rows / dataset.config.max_length)
    accumulation = accumulation_steps(
        global_batch_size=size, micro_batch_size=trainer.micro_batch_size, num_processes=there.processes
    )
    total = planned_steps(rows, global_batch_size=size, training_kwargs=trainer.training_kwargs, packed=trainer.packs)
    each = steps_per_epoch(rows, global_batch_size=size, packed=trainer.packs)
    result.facts["optimizer steps"] = f"{total:,}: {total / each:.3g} epochs of {each:,}"
    result.facts["rows of a step"] = (
        f"{size} = {trainer.micro_batch_size} × {accumulation} micro-batches × {there.processes} processes"
    )
    tokens = stats.tokens * total / each * (stats.of / stats.rows if lengths is None else 1)
    text = f"{'about ' if lengths is None or total % each else ''}{tokens:,.0f} in the run, padding not counted"
    if lengths is not None:
        plan = BatchPlan(lengths, global_batch_size=size, seed=config.run.seed, batching=trainer.batching)
        share = _padding(plan, accumulation=accumulation, processes=there.processes)
        text += f"; padding adds {share:.1%} (batching: {trainer.batching})"
    result.facts["tokens"] = text
    if config.run.mode == "full":  # the other modes shorten what the user set
        result.problems += length_problems(trainer.training_kwargs, steps=total, per_epoch=each)
    if lengths is not None:
        return int(lengths.max())
    return int(dataset.config.max_length) if trainer.packs else 0


def _train_lengths(config: Config, dataset: Any, tokenizer: Any, stats: LengthStats) -> np.ndarray | None:
    """Tokens of every row that training takes; None where there are too many texts to look at."""
    if stats.rows != stats.of and stats.of > MOST_ROWS:
        return None
    lengths: np.ndarray = dataset.model_rows("train", tokenizer).lengths
    if not config.trainer.packs:
        return lengths
    return pack_lengths(lengths, capacity=dataset.config.max_length, seed=config.run.seed)


def _padding(plan: BatchPlan, *, accumulation: int, processes: int) -> float:
    """The padding of the first epoch as a share of its tokens."""
    batches = [
        batch
        for rows in plan.step_rows(0)
        for of_process in deal(rows, plan.lengths, accumulation=accumulation, world_size=processes)
        for batch in of_process
    ]
    return padding_share(batches, plan.lengths)


def _views(dataset: Any, tokenizer: Any, stats: Mapping[str, LengthStats], result: CheckResult) -> None:
    """The first rows of the train split, as one batch."""
    if stats["train"].of > MOST_ROWS:
        return
    result.views["train"] = dataset.views("train", SHOWN_ROWS, tokenizer)
