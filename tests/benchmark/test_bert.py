"""The benchmark of sequence classification: each row once, in any order, into files that read back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from supertrainer.benchmark.base import read_predictions, read_result, spaced
from supertrainer.benchmark.bert import BertBenchmark
from supertrainer.benchmark.results import DataFacts, ModelFacts
from supertrainer.benchmark.rows import LabelledTexts
from supertrainer.benchmark.schema import BertBenchmarkConfig
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.metrics.classification import ClassificationMetric
from supertrainer.metrics.schema import ClassificationMetricConfig

NAMES = ("bad", "good")
ROWS = LabelledTexts(["dull", "great", ("a", "b"), "fine | \n\u2028 好"], [0, 1, 1, 0])
LOGITS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, math.log(3)]])  # predicts 0, 1, 0, 1


def make_benchmark(*, train: LabelledTexts | None = None, labels: int = 2, **config: object) -> BertBenchmark:
    metric = ClassificationMetric(
        ClassificationMetricConfig(_target_="supertrainer.metrics.classification.ClassificationMetric"),
        label_names=NAMES[:labels],
    )
    return BertBenchmark(
        BertBenchmarkConfig(_target_="supertrainer.benchmark.bert.BertBenchmark", **config),
        metric=metric,
        model=ModelFacts(source="tiny", parameters=10, trainable_parameters=10),
        data=DataFacts(source="rows", rows={"test": 4}, labels=NAMES[:labels]),
        train=train,
    )


def batches(*numbers: Sequence[int]) -> Iterator[tuple[Tensor, Sequence[int]]]:
    for rows in numbers:
        yield LOGITS[list(rows)], rows


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """An empty run directory."""
    return RunDirectory(tmp_path)


def test_result_by_hand(directory: RunDirectory) -> None:
    result = make_benchmark().run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    assert result.confusion == ((1, 1), (1, 1))
    assert result.metrics["accuracy"] == 0.5
    assert result.metrics["macro_f1"] == 0.5
    assert (result.split, result.rows, result.main_metric) == ("test", 4, "macro_f1")
    assert [(score.name, score.support) for score in result.per_class] == [("bad", 2), ("good", 2)]
    assert set(result.definitions) == set(result.metrics)
    assert result.timing.rows_per_second == pytest.approx(4 / result.timing.seconds)


def test_files_read_back(directory: RunDirectory) -> None:
    result = make_benchmark().run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    assert read_result(directory.path / "benchmark.json") == result
    records = list(read_predictions(directory.predictions_jsonl))
    assert [record["text"] for record in records] == ["dull", "great", ["a", "b"], "fine | \n\u2028 好"]
    assert records[3] == {
        "row": 3,
        "text": "fine | \n\u2028 好",
        "true": "bad",
        "predicted": "good",
        "probabilities": {"bad": 0.25, "good": 0.75},
    }
    assert len(directory.predictions_jsonl.read_bytes().split(b"\n")) == 5
    assert sorted(path.name for path in directory.path.iterdir()) == ["benchmark.json", "predictions.jsonl"]


def test_order_and_size_of_batches_change_nothing(directory: RunDirectory) -> None:
    def findings(*numbers: Sequence[int]) -> dict[str, object]:
        result = make_benchmark(samples=2).run(ROWS, predictions=batches(*numbers), directory=directory)
        return result.model_dump(exclude={"timing"})

    whole = findings([0, 1, 2, 3])
    assert [sample["row"] for sample in whole["samples"]] == [1, 3]
    assert findings([3, 1], [0], [2]) == whole


def test_indices_may_be_a_tensor(directory: RunDirectory) -> None:
    result = make_benchmark().run(ROWS, predictions=[(LOGITS.flip(0), torch.tensor([3, 2, 1, 0]))], directory=directory)
    assert result.metrics["accuracy"] == 0.5


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([[0, 1, 2]], r"1 of 4 rows got no prediction, first row 3"),
        ([[0, 1, 2, 3], [2]], r"the prediction for row 2 came twice"),
        ([[0, 1], [1, 2, 3]], r"the prediction for row 1 came twice"),
    ],
)
def test_each_row_comes_once(directory: RunDirectory, numbers: list[list[int]], message: str) -> None:
    with pytest.raises(SupertrainerError, match=message):
        make_benchmark().run(ROWS, predictions=batches(*numbers), directory=directory)
    assert list(directory.path.iterdir()) == []  # no file that looks like a result


@pytest.mark.parametrize("number", [4, -1])
def test_row_outside_the_split_is_an_error(directory: RunDirectory, number: int) -> None:
    with pytest.raises(SupertrainerError, match=f"row {number} isn't one of the 4 rows"):
        make_benchmark().run(ROWS, predictions=[(LOGITS[:1], [number])], directory=directory)


def test_logits_and_rows_of_a_batch_are_as_many(directory: RunDirectory) -> None:
    with pytest.raises(SupertrainerError, match="a batch has 2 rows of logits for 1 rows"):
        make_benchmark().run(ROWS, predictions=[(LOGITS[:2], [0])], directory=directory)


def test_failed_run_leaves_the_earlier_files(directory: RunDirectory) -> None:
    make_benchmark().run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    before = {path.name: path.read_bytes() for path in directory.path.iterdir()}
    with pytest.raises(SupertrainerError, match="no prediction"):
        make_benchmark().run(ROWS, predictions=batches([0]), directory=directory)
    assert {path.name: path.read_bytes() for path in directory.path.iterdir()} == before


def test_predictions_stream_to_the_disk(directory: RunDirectory) -> None:
    """A batch is asked for only when the records of the one before are written."""
    written: list[int] = []

    def watched() -> Iterator[tuple[Tensor, Sequence[int]]]:
        for start in range(0, 40_000, 1_000):
            aside = list(directory.path.glob(".predictions*"))
            written.append(aside[0].stat().st_size if aside else 0)
            yield torch.zeros(1_000, 2), range(start, start + 1_000)

    rows = LabelledTexts(["text"] * 40_000, [0] * 40_000)
    make_benchmark().run(rows, predictions=watched(), directory=directory)
    size = directory.predictions_jsonl.stat().st_size
    assert all(size * place / 40 - 20_000 < done <= size * place / 40 for place, done in enumerate(written))


def test_no_predictions_file_unless_wanted(directory: RunDirectory) -> None:
    make_benchmark(predictions=False).run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    assert [path.name for path in directory.path.iterdir()] == ["benchmark.json"]


def test_baselines_are_fitted_on_the_training_rows(directory: RunDirectory) -> None:
    train = LabelledTexts(["dull", "fine", "great", "great"], [0, 0, 1, 1])
    result = make_benchmark(train=train).run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    assert [baseline.name for baseline in result.baselines] == ["majority class", "bag of words"]
    assert result.baselines[1].fitted_rows == 4
    without = make_benchmark(train=train, baselines=False)
    assert without.run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory).baselines == ()


def test_tokens_and_memory_are_asked_at_the_end(directory: RunDirectory) -> None:
    result = make_benchmark().run(
        ROWS,
        predictions=batches([0, 1, 2, 3]),
        directory=directory,
        count_tokens=lambda: 100,
        peak_memory_gib=lambda: 1.5,
    )
    assert result.timing.tokens_per_second == pytest.approx(100 / result.timing.seconds)
    assert result.timing.peak_memory_gib == 1.5


def test_two_runs_do_not_add_up(directory: RunDirectory) -> None:
    benchmark = make_benchmark()
    for _ in range(2):
        result = benchmark.run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    assert result.confusion == ((1, 1), (1, 1))


def test_benchmark_json_is_strict(directory: RunDirectory) -> None:
    make_benchmark().run(ROWS, predictions=batches([0, 1, 2, 3]), directory=directory)
    raw = json.loads((directory.path / "benchmark.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert raw["data"]["labels"] == ["bad", "good"]
    assert raw["per_class"][0] == {"name": "bad", "precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2}


@pytest.mark.parametrize(
    ("length", "count", "rows"), [(10, 3, {1, 5, 8}), (3, 3, {0, 1, 2}), (2, 3, {0, 1}), (100, 0, set()), (0, 3, set())]
)
def test_spaced(length: int, count: int, rows: set[int]) -> None:
    assert spaced(length, count=count) == rows
