"""The base of every task's benchmark: predictions of a labelled split in, scores, samples and files out.

It knows no model and no engine: the caller passes predictions as they come, in any order and in batches of any size.
Of a row nothing is kept but whether it was seen, a byte.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Generic, TypeVar

from supertrainer.benchmark.results import Baseline, BenchmarkResult, DataFacts, ModelFacts, Sample, Timing
from supertrainer.benchmark.schema import TaskBenchmarkConfig
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.files import json_text, write_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.metrics.base import Metric

log = logging.getLogger(__name__)

Rows = TypeVar("Rows", bound=Sized)
Outputs = TypeVar("Outputs")
Record = Mapping[str, Any]
"""A line of predictions.jsonl; it has `row`, and what `TaskBenchmark.sample` reads."""


class TaskBenchmark(ABC, Generic[Rows, Outputs]):
    """Scores the rows of one split. A task says how a batch of outputs is scored and what a row's record is."""

    def __init__(
        self, config: TaskBenchmarkConfig, *, metric: Metric[Any, Any], model: ModelFacts, data: DataFacts
    ) -> None:
        """
        Args:
            config: the split and what to show of it.
            metric: takes the sums; it is reset by every run.
            model: which model makes the predictions, for the result.
            data: where the rows come from, for the result.
        """
        self.config = config
        self.metric = metric
        self.model = model
        self.data = data

    @abstractmethod
    def score(self, rows: Rows, *, outputs: Outputs, numbers: Sequence[int]) -> Iterable[Record]:
        """Adds a batch to the metric and yields the record of each of its rows.

        Args:
            rows: the split.
            outputs: what the model gave for a batch.
            numbers: the rows of the split that the batch holds, in the order of `outputs`.
        """

    @abstractmethod
    def sample(self, record: Record) -> Sample | None:
        """A record as a report shows it; None where it has nothing to show."""

    @abstractmethod
    def definitions(self) -> dict[str, str]:
        """What each scalar of the metric means."""

    def baselines(self, rows: Rows) -> Sequence[Baseline]:
        """Scores of simple predictors on the same rows; none unless a task has some."""
        return ()

    def shown_rows(self, rows: Rows) -> frozenset[int]:
        """The numbers of the rows that become samples."""
        return spaced(len(rows), count=self.config.samples)

    def details(self) -> dict[str, Any]:
        """Fields of `BenchmarkResult` beyond the scalars, such as a table of classes; none unless a task has some."""
        return {}

    def run(
        self,
        rows: Rows,
        *,
        predictions: Iterable[tuple[Outputs, Sequence[int]]],
        directory: RunDirectory,
        count_tokens: Callable[[], int] | None = None,
        peak_memory_gib: Callable[[], float | None] | None = None,
    ) -> BenchmarkResult:
        """Scores every row once and writes benchmark.json, and predictions.jsonl where the config wants it.

        Args:
            rows: the split.
            predictions: batches of outputs with the numbers of their rows, in any order; each row comes once.
            directory: where the files go.
            count_tokens: tokens that the engine read for all of it, asked at the end.
            peak_memory_gib: greatest memory while predicting, asked at the end.

        Raises:
            SupertrainerError: a row came twice, never, or isn't of the split; or an output is no number.
            OSError: the disk is full or the directory isn't writable.
        """
        self.metric.reset()
        started = time.perf_counter()
        with self._writer(directory) as write:
            samples = self._score_all(rows, predictions=predictions, write=write)
        seconds = time.perf_counter() - started
        tokens = count_tokens() if count_tokens else None
        metrics, details = self.metric.compute(), self.details()  # before a baseline takes the metric
        result = BenchmarkResult(
            model=self.model,
            data=self.data,
            split=self.config.split,
            rows=len(rows),
            main_metric=self.metric.main,
            metrics=metrics,
            definitions=self.definitions(),
            baselines=tuple(self.baselines(rows)),
            samples=samples,
            timing=Timing(
                seconds=seconds,
                rows_per_second=len(rows) / seconds,
                tokens_per_second=None if tokens is None else tokens / seconds,
                peak_memory_gib=peak_memory_gib() if peak_memory_gib else None,
            ),
            **details,
        )
        write_json(directory.path / "benchmark.json", result.model_dump())
        return result

    def _score_all(
        self,
        rows: Rows,
        *,
        predictions: Iterable[tuple[Outputs, Sequence[int]]],
        write: Callable[[Record], None],
    ) -> tuple[Sample, ...]:
        wanted = self.shown_rows(rows)
        samples: dict[int, Sample] = {}
        seen = bytearray(len(rows))
        for outputs, numbers in predictions:
            numbers = [int(number) for number in numbers]
            _mark(seen, numbers=numbers)
            for record in self.score(rows, outputs=outputs, numbers=numbers):
                write(record)
                sample = self.sample(record) if record["row"] in wanted else None
                if sample is not None:
                    samples[record["row"]] = sample
        missing = len(seen) - sum(seen)
        if missing:
            raise SupertrainerError(
                f"{missing} of {len(seen)} rows got no prediction, first row {seen.index(0)}.",
                why="scores over a part of the split would be told as those of the split.",
                fix="look above for what the engine said; run the benchmark again.",
            )
        return tuple(samples[row] for row in sorted(samples))

    @contextlib.contextmanager
    def _writer(self, directory: RunDirectory) -> Iterator[Callable[[Record], None]]:
        """Takes records one by one; the file has its name only when all of them are in it."""
        if not self.config.predictions:
            yield lambda record: None
            return
        path = directory.predictions_jsonl
        aside = path.with_name(f".{path.name}.incoming")
        try:
            with aside.open("w", encoding="utf-8", newline="\n", errors="backslashreplace") as file:
                yield lambda record: print(json_text(record), file=file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)


def read_result(path: Path) -> BenchmarkResult:
    """The result that a benchmark.json holds."""
    return BenchmarkResult.model_validate_json(path.read_bytes())


def read_predictions(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a predictions.jsonl, one at a time."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def spaced(length: int, *, count: int) -> frozenset[int]:
    """At most `count` row numbers, evenly spaced over a split of `length` rows: the same for any order of batches."""
    count = min(count, length)
    return frozenset((2 * place + 1) * length // (2 * count) for place in range(count))


def _mark(seen: bytearray, *, numbers: Sequence[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(seen) or seen[number]:
            what = "came twice" if 0 <= number < len(seen) else f"isn't one of the {len(seen)} rows of the split"
            raise SupertrainerError(
                f"the prediction for row {number} {what}.",
                why="every row counts once.",
                fix="the engine must give each row's number once, from 0.",
            )
        seen[number] = 1
