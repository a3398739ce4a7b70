"""Metrics of labels, numbers, tags and masked tokens: by hand, against scikit-learn and torch, and under any split."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from supertrainer.core.errors import ConfigError, DataError, SupertrainerError
from supertrainer.metrics.masked_lm import MaskedLmMetric
from supertrainer.metrics.multi_label import MultiLabelMetric
from supertrainer.metrics.regression import RegressionMetric
from supertrainer.metrics.schema import (
    MaskedLmMetricConfig,
    MultiLabelMetricConfig,
    RegressionMetricConfig,
    TokenMetricConfig,
)
from supertrainer.metrics.tokens import TokenMetric

TAGS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def multi_label(size: int = 3, **config: Any) -> MultiLabelMetric:
    return MultiLabelMetric(MultiLabelMetricConfig(_target_="x", **config), label_names=[f"l{i}" for i in range(size)])


def tokens(names: tuple[str, ...] = TAGS, **config: Any) -> TokenMetric:
    return TokenMetric(TokenMetricConfig(_target_="x", **config), label_names=names)


def regression() -> RegressionMetric:
    return RegressionMetric(RegressionMetricConfig(_target_="x"))


def masked_lm() -> MaskedLmMetric:
    return MaskedLmMetric(MaskedLmMetricConfig(_target_="x"))


def as_logits(tags: str, names: tuple[str, ...] = TAGS) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor([names.index(tag) for tag in tags.split()]), len(names)) * 4.0


def as_ids(tags: str, names: tuple[str, ...] = TAGS) -> torch.Tensor:
    return torch.tensor([names.index(tag) for tag in tags.split()])


def test_labels_by_hand() -> None:
    """Two rows: one right in all three labels, one with a label too many and one missing."""
    metric = multi_label()
    metric.update(torch.tensor([[1.0, -1, -1], [1.0, 1, -1]]), torch.tensor([[1, 0, 0], [1, 0, 1]]))
    scores = metric.compute()
    assert (scores["subset_accuracy"], scores["hamming_loss"]) == (0.5, 2 / 6)
    assert scores["micro_f1"] == 2 * 2 / (2 * 2 + 1 + 1)
    assert scores["macro_f1"] == (1 + 0 + 0) / 3
    assert [score.support for score in metric.table()] == [2, 0, 1]


def test_labels_as_scikit_learn_counts_them() -> None:
    from sklearn.metrics import f1_score, precision_score

    logits, labels = torch.randn(50, 4), (torch.rand(50, 4) > 0.6).long()
    metric = multi_label(4)
    metric.update(logits, labels)
    given = (logits > 0).long().numpy()
    for average in ("micro", "macro"):
        expected = f1_score(labels.numpy(), given, average=average, zero_division=0)
        assert metric.compute()[f"{average}_f1"] == pytest.approx(expected, abs=1e-12)
    expected = precision_score(labels.numpy(), given, average="macro", zero_division=0)
    assert metric.compute()["macro_precision"] == pytest.approx(expected, abs=1e-12)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.double(), labels.double())
    assert metric.compute()["loss"] == pytest.approx(float(loss), rel=1e-12)


def test_the_threshold_is_a_probability() -> None:
    metric = multi_label(1, threshold=0.8)
    metric.update(torch.tensor([[math.log(4) + 1e-9], [math.log(4) - 1e-6]]), torch.tensor([[1], [1]]))
    assert metric.compute()["micro_recall"] == 0.5
    assert metric.noted() == {"threshold": 0.8}


def test_numbers_by_hand() -> None:
    metric = regression()
    metric.update(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.0, 3.0, 2.0]))
    scores = metric.compute()
    assert (scores["mse"], scores["mae"]) == (5 / 3, 1.0)
    assert scores["r2"] == 1 - 5 / 2
    assert scores["pearson"] == pytest.approx(1.0 / (math.sqrt(14 / 3) * math.sqrt(2)), rel=1e-12)
    assert scores["spearman"] == pytest.approx(0.5, rel=1e-12)


def test_numbers_with_ties_as_scipy_ranks_them() -> None:
    from scipy.stats import pearsonr, spearmanr

    predicted = torch.randint(0, 5, (40,)).double()
    true = predicted + torch.randint(0, 5, (40,)).double()
    metric = regression()
    metric.update(predicted, true)
    assert metric.compute()["spearman"] == pytest.approx(spearmanr(predicted, true).statistic, abs=1e-12)
    assert metric.compute()["pearson"] == pytest.approx(pearsonr(predicted, true).statistic, abs=1e-12)


def test_a_constant_prediction_correlates_with_nothing() -> None:
    metric = regression()
    metric.update(torch.zeros(3, 1), torch.tensor([1.0, 2.0, 3.0]))
    assert (metric.compute()["pearson"], metric.compute()["spearman"]) == (0.0, 0.0)


def test_an_i_tag_without_its_b_is_no_span() -> None:
    """Scored as a right span elsewhere, where only type and end are looked at."""
    metric = tokens()
    metric.update(as_logits("I-PER I-PER O B-LOC"), [as_ids("B-PER I-PER O B-LOC")])
    scores = metric.compute()
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)
    assert [(s.name, s.f1, s.support) for s in metric.table()] == [("LOC", 1.0, 1), ("PER", 0.0, 1)]
    assert scores["tag_accuracy"] == 3 / 4


def test_a_span_ends_with_its_row() -> None:
    metric = tokens()
    metric.update(as_logits("B-PER I-PER"), [as_ids("B-PER"), as_ids("O")])
    assert metric.compute()["f1"] == 1.0  # the I- of the second row goes on from nothing


def test_spans_need_their_type_beginning_and_end() -> None:
    metric = tokens()
    metric.update(as_logits("B-PER O B-LOC I-LOC B-LOC"), [as_ids("B-PER I-PER B-PER I-PER B-LOC")])
    scores = metric.compute()
    assert (scores["precision"], scores["recall"], scores["f1"]) == (1 / 3, 1 / 3, 1 / 3)


def test_tags_that_mark_no_spans_are_scored_one_by_one() -> None:
    names = ("DET", "NOUN")
    metric = tokens(names, main="tag_accuracy")
    metric.update(as_logits("DET NOUN NOUN", names), [as_ids("DET NOUN DET", names)])
    assert metric.compute()["tag_accuracy"] == 2 / 3
    assert "f1" not in metric.compute()
    with pytest.raises(ConfigError, match=r"metric\.main=f1: the tag 'DET'.*(?s:.*)tag_macro_f1"):
        tokens(names)


def test_a_corpus_is_scored_once_not_by_the_mean_of_its_batches() -> None:
    """Batches of 1 and 2 spans with F1 1 and 0.5: their mean is 0.75; over all spans it is 2/3."""
    metric = tokens()
    metric.update(as_logits("B-PER"), [as_ids("B-PER")])
    metric.update(as_logits("B-PER O B-LOC"), [as_ids("B-PER B-LOC O")])
    assert metric.compute()["f1"] == 2 / 3


def test_masked_tokens_by_hand() -> None:
    metric = masked_lm()
    metric.update(torch.tensor([[0.0, 0.0], [0.0, 0.0]]), [torch.tensor([0]), torch.tensor([1])])
    scores = metric.compute()
    assert scores["loss"] == pytest.approx(math.log(2), rel=1e-7)
    assert scores["perplexity"] == pytest.approx(2, rel=1e-6)
    assert scores["accuracy"] == 0.5


def rows_of(kind: str) -> tuple[Any, list[tuple[torch.Tensor, Any]]]:
    """A metric, and twelve rows of one batch each."""
    generator = torch.Generator().manual_seed(0)
    rows: list[tuple[torch.Tensor, Any]] = []
    for _ in range(12):
        length = int(torch.randint(1, 6, (1,), generator=generator))
        match kind:
            case "labels":
                rows.append((torch.randn(1, 3, generator=generator), torch.randint(0, 2, (1, 3), generator=generator)))
            case "numbers":
                rows.append((torch.randn(1, 1, generator=generator), torch.randn(1, generator=generator)))
            case _:
                logits = torch.randn(length, 5, generator=generator)
                rows.append((logits, [torch.randint(0, 5, (length,), generator=generator)]))
    return {"labels": multi_label, "numbers": regression, "tags": tokens, "masked": masked_lm}[kind](), rows


@pytest.mark.parametrize("kind", ["labels", "numbers", "tags", "masked"])
def test_neither_batches_nor_order_nor_processes_show(kind: str) -> None:
    metric, rows = rows_of(kind)
    for logits, labels in rows:
        metric.update(logits, labels)
    one_by_one = metric.compute()
    metric.reset()
    states = []
    for part in (rows[7:], rows[:7]):
        joined = [row for _, labels in part for row in labels] if isinstance(part[0][1], list) else None
        labels = joined if joined is not None else torch.cat([labels for _, labels in part])
        metric.update(torch.cat([logits for logits, _ in part]), labels)
        states.append(metric.state())
        metric.reset()
    for state in states:
        metric.merge(state)
    assert metric.compute() == one_by_one


@pytest.mark.parametrize("kind", ["labels", "numbers", "tags", "masked"])
def test_what_is_no_number_and_what_is_nothing_is_an_error(kind: str) -> None:
    metric, rows = rows_of(kind)
    with pytest.raises(DataError, match="was evaluated"):
        metric.compute()
    logits, labels = rows[0]
    with pytest.raises(SupertrainerError, match="NaN or infinite"):
        metric.update(torch.full_like(logits, float("nan")), labels)
