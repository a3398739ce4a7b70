"""A benchmark of answers, by hand: tokens, generated answers, the same before training, common tokens."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.benchmark.console import print_benchmark
from supertrainer.benchmark.llm import LlmBenchmark, unigram
from supertrainer.benchmark.llm_scores import LlmOutputs
from supertrainer.benchmark.page.worst import read_worst
from supertrainer.benchmark.results import DataFacts, ModelFacts
from supertrainer.benchmark.rows import Conversations
from supertrainer.benchmark.schema import LlmBenchmarkConfig
from supertrainer.core.errors import DataError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.inference.generation import Answer
from supertrainer.inference.token_losses import TokenLosses
from supertrainer.metrics.causal_lm import CausalLmMetric
from supertrainer.metrics.schema import CausalLmMetricConfig

ROWS = Conversations(["q0", "q1", "q2"], ["a b", "c", None], [[1, 2], [1, 1, 3], []], vocabulary=4)
LOSSES = [[1.0, 2.0], [3.0, 0.0, 0.5], []]
ANSWERS = {0: "a x", 1: "c"}


def make_benchmark(*, train: Conversations | None = None, **config: Any) -> LlmBenchmark:
    metric = CausalLmMetric(CausalLmMetricConfig(_target_="x"))
    return LlmBenchmark(
        LlmBenchmarkConfig(_target_="x", **config),
        metric=metric,
        model=ModelFacts(source="tiny", parameters=10, trainable_parameters=10),
        data=DataFacts(source="rows", rows={"test": 3}),
        train=train,
    )


def outputs(*batches: list[int], plus: float = 0.0, suffix: str = "") -> Iterator[tuple[LlmOutputs, list[int]]]:
    for rows in batches:
        values = torch.tensor([value + plus for row in rows for value in LOSSES[row]], dtype=torch.float64)
        counts = tuple(len(LOSSES[row]) for row in rows)
        answers = {
            row: Answer(ANSWERS[row] + suffix, (5, 6, 3), "stop", 4, ended=not suffix) for row in rows if row in ANSWERS
        }
        yield LlmOutputs(TokenLosses(values, values < 1.0, counts), answers), rows


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """An empty run directory."""
    return RunDirectory(tmp_path)


@pytest.mark.parametrize("batches", [([0, 1, 2],), ([2], [1], [0]), ([1, 0], [2])])
def test_scores_by_hand_whatever_the_batches(directory: RunDirectory, batches: Any) -> None:
    result = make_benchmark().run(ROWS, predictions=outputs(*batches), directory=directory)
    assert result.metrics == {
        "loss": 6.5 / 5,
        "perplexity": math.exp(1.3),
        "accuracy": 2 / 5,
        "exact_match": 0.5,
        "answer_f1": 0.75,
        "rouge_l": 0.75,
        "chrf": pytest.approx((0.25 + 1) / 2),  # "ax" for "ab": 1-grams 1/2, 2-grams 0
        "ended": 1.0,
        "answer_tokens": 3.0,
    }
    assert (result.main_metric, result.rows) == ("loss", 3)
    assert result.definitions.keys() == result.metrics.keys()


def test_a_record_holds_prompt_answer_and_loss(directory: RunDirectory) -> None:
    make_benchmark().run(ROWS, predictions=outputs([0, 2, 1]), directory=directory)
    records = [json.loads(line) for line in directory.predictions_jsonl.read_text().splitlines()]
    first, second, _ = records
    assert {name: first[name] for name in ("row", "prompt", "true", "predicted", "loss", "tokens", "finish")} == {
        "row": 0,
        "prompt": "q0",
        "true": "a b",
        "predicted": "a x",
        "loss": 1.5,
        "tokens": 2,
        "finish": "stop",
    }
    assert second == {"row": 2, "prompt": "q2", "true": None, "predicted": None, "loss": None, "tokens": 0}
    [mistake] = read_worst(records).mistakes
    assert (mistake.row, mistake.texts) == (0, ("q0",)), "the other answer is right"


def test_a_row_whose_prompt_was_not_asked_is_no_sample(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(ANSWERS, 0)
    result = make_benchmark().run(ROWS, predictions=outputs([0, 1, 2]), directory=directory)
    assert [sample.row for sample in result.samples] == [1]
    assert result.metrics["exact_match"] == 1.0


def test_the_model_before_training_stands_beside_it(directory: RunDirectory) -> None:
    benchmark = make_benchmark()
    benchmark.take_before(ROWS, predictions=outputs([0, 1, 2], plus=1.0, suffix=" z"), source="org/base")
    result = benchmark.run(ROWS, predictions=outputs([0, 1, 2]), directory=directory)
    [before] = result.baselines
    assert (before.name, before.method) == ("before training", "org/base")
    assert before.metrics["loss"] == pytest.approx(2.3)
    assert (before.metrics["exact_match"], before.metrics["ended"]) == (0.0, 0.0)
    assert (result.metrics["loss"], result.metrics["exact_match"]) == (1.3, 0.5)
    assert [(sample.row, sample.true, sample.before, sample.predicted) for sample in result.samples] == [
        (0, "a b", "a x z", "a x"),
        (1, "c", "c z", "c"),
    ]
    printed = io.StringIO()
    print_benchmark(result, directory="runs/x", stream=printed)
    assert "    before    a x z\n    predicted a x\n" in printed.getvalue()
    assert max(map(len, printed.getvalue().splitlines())) <= 100


def test_tokens_by_how_common_they_are() -> None:
    train = Conversations(["q"], ["a"], [[1, 1, 1, 2]], vocabulary=4)
    scores = unigram(train, test=ROWS).metrics
    # counts with one of each: 1, 4, 2, 1 of 8; the test's tokens are 1 (three times), 2 and 3
    assert scores["loss"] == pytest.approx(-(3 * math.log(4 / 8) + math.log(2 / 8) + math.log(1 / 8)) / 5)
    assert scores["accuracy"] == 3 / 5


def test_rows_are_answered_evenly_and_only_those_with_an_answer() -> None:
    rows = Conversations(["q"] * 10, ["a", None] * 5, [[1]] * 10, vocabulary=4)
    assert make_benchmark(generate_rows=5).answered_rows(rows) == []
    assert make_benchmark(generate_rows=10).answered_rows(rows) == [0, 2, 4, 6, 8]
    assert make_benchmark(generate_rows=0).answered_rows(rows) == []
    assert make_benchmark(generate_rows=10, samples=1).shown_rows(rows) == {4}


def test_without_answers_there_are_the_scores_of_tokens(directory: RunDirectory) -> None:
    given = ((LlmOutputs(one.losses), rows) for one, rows in outputs([0, 1, 2]))
    result = make_benchmark(generate_rows=0).run(ROWS, predictions=given, directory=directory)
    assert result.metrics.keys() == {"loss", "perplexity", "accuracy"}
    assert result.samples == ()


def test_a_split_without_labels_has_no_scores(directory: RunDirectory) -> None:
    rows = Conversations(["q"], [None], [[]], vocabulary=4)
    empty = TokenLosses(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.bool), (0,))
    with pytest.raises(DataError, match="no labelled token was scored"):
        make_benchmark().run(rows, predictions=[(LlmOutputs(empty), [0])], directory=directory)
