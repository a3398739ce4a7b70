"""The loss as a sum over everything that has a label, whatever shape it comes in."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from supertrainer.core.errors import SupertrainerError
from supertrainer.trainers.losses import Objective, StepLoss, label_count, summed_cross_entropy


def test_two_even_classes_cost_log_two_each() -> None:
    total = summed_cross_entropy(torch.zeros(3, 2), torch.tensor([0, 1, 1]))
    assert float(total) == pytest.approx(3 * 0.6931471805599453, abs=1e-6)


def test_a_ghost_row_adds_nothing_to_loss_or_gradient() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    summed_cross_entropy(logits, torch.tensor([2, -100, 1])).backward()
    assert logits.grad is not None
    assert logits.grad[1].tolist() == [0, 0, 0, 0]
    alone = torch.randn(1, 4, requires_grad=True)
    total = summed_cross_entropy(alone, torch.tensor([-100]))
    total.backward()
    assert alone.grad is not None
    assert (total.item(), alone.grad.tolist()) == (0.0, [[0, 0, 0, 0]])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_any_split_has_the_gradient_of_the_whole(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    labels = torch.tensor([0, 2, -100, 1, 1, 0, -100])
    whole = logits.clone().requires_grad_()
    F.cross_entropy(whole, labels, ignore_index=-100, label_smoothing=smoothing).backward()
    parts = logits.clone().requires_grad_()
    for rows in ([0, 1, 2], [3], [4, 5, 6]):
        (summed_cross_entropy(parts[rows], labels[rows], label_smoothing=smoothing) / 5).backward()
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-6, atol=1e-7)


def test_token_labels_sum_over_tokens() -> None:
    logits, labels = torch.zeros(2, 3, 4), torch.tensor([[1, 2, -100], [3, -100, -100]])
    assert float(summed_cross_entropy(logits, labels)) == pytest.approx(3 * 1.3862943611, abs=1e-6)


def test_half_precision_is_summed_in_float32() -> None:
    logits = torch.zeros(4096, 2, dtype=torch.bfloat16)
    total = summed_cross_entropy(logits, torch.zeros(4096, dtype=torch.long))
    assert total.dtype == torch.float32
    assert float(total) == pytest.approx(4096 * 0.6931471805599453, rel=1e-5)


AS_GIVEN = Objective(lambda logits, labels: logits, label_count)


def given(value: float) -> SimpleNamespace:
    """Outputs whose loss is a number."""
    return SimpleNamespace(logits=torch.tensor(value))


def micro_batches(loss: StepLoss, step: int, *sums: float, labels: int) -> None:
    for value in sums:
        loss(given(value), torch.tensor([0]), num_items_in_batch=labels)
    loss.end_step(step)


def test_the_logged_loss_weighs_every_label_alike() -> None:
    loss = StepLoss(AS_GIVEN)
    assert float(loss(given(6.0), torch.tensor([0]), num_items_in_batch=4)) == 1.5
    loss.end_step(1)
    micro_batches(loss, 2, 1.0, 1.0, labels=2)
    assert loss.drain() == (6 + 2) / (4 + 2)  # not the mean of 1.5 and 1.0
    micro_batches(loss, 3, 3.0, labels=3)
    assert loss.drain() == 1.0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_its_step(value: float) -> None:
    loss = StepLoss(AS_GIVEN)
    micro_batches(loss, 11, 1.0, labels=1)
    with pytest.raises(SupertrainerError, match=rf"(?s)the loss of step 12 is {value}.*learning_rate"):
        micro_batches(loss, 12, 1.0, value, labels=2)
