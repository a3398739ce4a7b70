"""Classification scores: scikit-learn's on the raw rows, whatever the split of the rows."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support
from torch import Tensor

from supertrainer.core.errors import DataError, SupertrainerError
from supertrainer.metrics.classification import ClassificationMetric
from supertrainer.metrics.schema import ClassificationMetricConfig
from supertrainer.metrics.scores import CLASSIFICATION_DEFINITIONS, ClassScore

CONFIG = ClassificationMetricConfig(_target_="supertrainer.metrics.classification.ClassificationMetric")


def make_metric(num_labels: int) -> ClassificationMetric:
    return ClassificationMetric(CONFIG, label_names=[f"class {i}" for i in range(num_labels)])


def logits_for(predicted: list[int], *, num_labels: int) -> Tensor:
    return F.one_hot(torch.tensor(predicted), num_labels).float()  # (B, C)


def scored(*, true: list[int], predicted: list[int], num_labels: int) -> ClassificationMetric:
    metric = make_metric(num_labels)
    metric.update(logits_for(predicted, num_labels=num_labels), torch.tensor(true))
    return metric


CASES = {
    "mixed": ([0, 1, 2, 2, 1, 0, 2], [0, 2, 2, 1, 1, 0, 2], 3),
    "absent from truth": ([0, 0, 1], [0, 2, 1], 3),
    "never predicted": ([0, 1, 2], [0, 1, 1], 3),
    "absent from both": ([0, 1, 1], [0, 1, 0], 4),
    "perfect": ([2, 0, 1], [2, 0, 1], 3),
    "all wrong": ([0, 1], [1, 0], 2),
    "one row": ([1], [1], 2),
    "one row of one class": ([0], [0], 3),
}


@pytest.mark.parametrize(("true", "predicted", "num_labels"), CASES.values(), ids=CASES)
def test_equals_scikit_learn_on_the_raw_rows(true: list[int], predicted: list[int], num_labels: int) -> None:
    metric = scored(true=true, predicted=predicted, num_labels=num_labels)
    options = {"labels": list(range(num_labels)), "zero_division": 0}
    expected = {"accuracy": accuracy_score(true, predicted)}
    for average in ("macro", "weighted"):
        precision, recall, f1, _ = precision_recall_fscore_support(true, predicted, average=average, **options)
        expected |= {f"{average}_precision": precision, f"{average}_recall": recall, f"{average}_f1": f1}
    scores = metric.compute()
    del scores["loss"]
    assert scores == expected
    assert metric.confusion.tolist() == confusion_matrix(true, predicted, labels=options["labels"]).tolist()
    columns = precision_recall_fscore_support(true, predicted, average=None, **options)
    assert [(row.precision, row.recall, row.f1, row.support) for row in metric.table()] == list(
        zip(*columns, strict=True)
    )


def test_numbers_of_a_small_case_by_hand() -> None:
    metric = scored(true=[0, 0, 0, 1], predicted=[0, 0, 1, 1], num_labels=2)
    assert metric.confusion.tolist() == [[2, 1], [0, 1]]
    assert metric.rows == 4
    assert metric.table() == [ClassScore("class 0", 1.0, 2 / 3, 0.8, 3), ClassScore("class 1", 0.5, 1.0, 2 / 3, 1)]
    scores = metric.compute()
    assert scores["accuracy"] == 0.75
    assert scores["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2, abs=1e-15)
    assert scores["weighted_f1"] == pytest.approx(0.75 * 0.8 + 0.25 * 2 / 3, abs=1e-15)


def test_single_class_is_always_right() -> None:
    metric = scored(true=[0, 0], predicted=[0, 0], num_labels=1)
    assert (metric.confusion.tolist(), set(metric.compute().values())) == ([[2]], {0.0, 1.0})


def test_absent_class_counts_in_the_macro_mean() -> None:
    assert scored(true=[0, 1], predicted=[0, 1], num_labels=4).compute()["macro_f1"] == 0.5


def test_loss_is_the_mean_over_all_rows() -> None:
    logits, labels = torch.randn(500, 7, generator=torch.Generator().manual_seed(0)) * 5, torch.arange(500) % 7
    metric = make_metric(7)
    metric.update(logits, labels)
    assert metric.compute()["loss"] == pytest.approx(float(F.cross_entropy(logits.double(), labels)), rel=1e-14)


def test_loss_of_certain_and_of_hopeless_rows() -> None:
    metric = make_metric(2)
    metric.update(torch.tensor([[3e38, -3e38], [-3e38, 3e38]]), torch.tensor([0, 0]))
    assert metric.compute()["loss"] == pytest.approx(3e38, rel=1e-7)


def test_corpus_value_not_the_mean_of_batch_values() -> None:
    metric = make_metric(2)  # batch accuracies 1.0 and 1/3 average to 2/3; 7 of 9 rows are right
    metric.update(logits_for([0] * 6, num_labels=2), torch.tensor([0] * 6))
    metric.update(logits_for([1, 1, 1], num_labels=2), torch.tensor([1, 0, 0]))
    assert metric.compute()["accuracy"] == 7 / 9


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_any_split_and_order_gives_the_same_bits(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = (torch.randn(997, 5, generator=generator) * 20).to(dtype)
    labels = torch.randint(0, 5, (997,), generator=generator)
    labels[::13] = -100
    whole = make_metric(5)
    whole.update(logits, labels)
    order = torch.randperm(997, generator=generator)
    for size in (1, 7, 64, 996):
        split = make_metric(5)
        for rows in order.split(size):
            split.update(logits[rows], labels[rows])
        assert split.compute() == whole.compute(), size
        assert split.table() == whole.table(), size


def test_states_of_processes_add_up() -> None:
    logits, labels = torch.randn(101, 3, generator=torch.Generator().manual_seed(2)), torch.arange(101) % 3
    whole, first, second = make_metric(3), make_metric(3), make_metric(3)
    whole.update(logits, labels)
    first.update(logits[::2], labels[::2])
    second.update(logits[1::2], labels[1::2])
    total = first.state() + second.state()  # what a sum all-reduce leaves on every process
    first.reset()
    first.merge(total)
    assert first.compute() == whole.compute()
    assert first.confusion.tolist() == whole.confusion.tolist()


def test_state_is_a_copy_and_does_not_grow() -> None:
    metric = make_metric(3)
    before = metric.state()
    for _ in range(50):
        metric.update(torch.zeros(100, 3), torch.zeros(100, dtype=torch.long))
    assert before.tolist() == [0] * len(before)
    assert metric.state().shape == before.shape == (7 + 9,)
    assert metric.rows == 5000


def test_ignored_rows_do_not_count_even_when_nan() -> None:
    metric = make_metric(2)
    metric.update(torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]), torch.tensor([0, -100]))
    assert metric.rows == 1
    assert metric.compute()["accuracy"] == 1.0


def test_equal_logits_predict_the_first_class() -> None:
    metric = make_metric(3)
    metric.update(torch.zeros(4, 3), torch.tensor([0, 1, 2, 0]))
    assert metric.confusion.tolist() == [[2, 0, 0], [1, 0, 0], [1, 0, 0]]


def test_reset_forgets() -> None:
    metric = scored(true=[0, 1], predicted=[1, 1], num_labels=2)
    metric.reset()
    metric.update(logits_for([1], num_labels=2), torch.tensor([1]))
    assert metric.compute()["accuracy"] == 1.0
    with pytest.raises(DataError, match="batch 2: "):  # batches are counted from the reset too
        metric.update(torch.zeros(1, 3), torch.tensor([0]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_an_error_naming_batch_and_row(bad: float) -> None:
    metric = make_metric(2)
    metric.update(torch.zeros(2, 2), torch.tensor([0, 1]))
    logits = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.5, bad]])
    with pytest.raises(SupertrainerError, match=rf"batch 2: .* 1 of 2 rows .* row 2 of the batch: \[0.5, {bad}\]"):
        metric.update(logits, torch.tensor([-100, 0, 1]))
    assert metric.rows == 2  # the broken batch left no trace


@pytest.mark.parametrize("label", [2, -1])
def test_label_outside_the_set_is_an_error(label: int) -> None:
    with pytest.raises(DataError, match=rf"batch 1: row 1 of the batch has label {label}, outside 0 … 1"):
        make_metric(2).update(torch.zeros(2, 2), torch.tensor([0, label]))


def test_logits_of_another_label_count_are_an_error() -> None:
    with pytest.raises(DataError, match=r"logits \(2, 3\) and labels \(2,\) don't fit 2 classes"):
        make_metric(2).update(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


def test_no_row_is_an_error() -> None:
    metric = make_metric(2)
    metric.update(torch.zeros(1, 2), torch.tensor([-100]))
    with pytest.raises(DataError, match="no labelled row was evaluated"):
        metric.compute()


def test_every_scalar_has_a_definition_and_main_is_one() -> None:
    metric = scored(true=[0], predicted=[0], num_labels=2)
    assert list(metric.compute()) == list(CLASSIFICATION_DEFINITIONS)
    assert metric.main in CLASSIFICATION_DEFINITIONS


def test_better_follows_the_direction() -> None:
    assert make_metric(2).is_better(0.9, than=0.8)
    assert not make_metric(2).is_better(0.8, than=0.8)
    config = CONFIG.model_copy(update={"main": "loss", "greater_is_better": False})
    assert ClassificationMetric(config, label_names=["a", "b"]).is_better(0.1, than=0.2)
