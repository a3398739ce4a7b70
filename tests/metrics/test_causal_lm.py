"""The metric of language models: by hand, against torch, and under any split."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from supertrainer.core.errors import DataError, SupertrainerError
from supertrainer.metrics.causal_lm import CausalLmMetric
from supertrainer.metrics.schema import CausalLmMetricConfig


def metric() -> CausalLmMetric:
    return CausalLmMetric(CausalLmMetricConfig(_target_="x"))


def test_two_tokens_by_hand() -> None:
    """Probabilities 1/2 for the one that was there, and 1/4: the loss is (1 + 2)/2 · ln 2."""
    scored = metric()
    scored.update(
        torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]).log(),
        torch.tensor([0, 1]),
    )
    found = scored.compute()
    assert found["loss"] == pytest.approx(1.5 * math.log(2), rel=1e-6)
    assert found["perplexity"] == pytest.approx(2**1.5, rel=1e-6)
    assert found["accuracy"] == 0.5


def test_any_split_and_order_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    logits, tokens = torch.randn(50, 30) * 5, torch.randint(0, 30, (50,))
    whole = metric()
    whole.update(logits, tokens)
    order = torch.randperm(50)
    parts = [metric(), metric()]
    for index, chunk in enumerate(order.split(7)):
        parts[index % 2].update(logits[chunk], tokens[chunk])
    parts[0].merge(parts[1].state())
    assert parts[0].compute() == whole.compute()
    assert whole.compute()["loss"] == pytest.approx(F.cross_entropy(logits, tokens).item(), rel=1e-6)


def test_a_great_loss_has_a_finite_perplexity() -> None:
    scored = metric()
    scored.update(torch.tensor([[0.0, 3000.0]]), torch.tensor([0]))
    assert scored.compute()["loss"] == 3000.0
    assert math.isfinite(scored.compute()["perplexity"])


def test_nothing_labelled_is_an_error() -> None:
    scored = metric()
    scored.update(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))
    with pytest.raises(DataError, match="no labelled token"):
        scored.compute()


def test_logits_that_are_no_numbers_are_an_error() -> None:
    with pytest.raises(SupertrainerError, match="NaN or infinite"):
        metric().update(torch.tensor([[0.0, float("nan")]]), torch.tensor([0]))


def test_the_loss_is_lower_the_better() -> None:
    assert metric().is_better(1.0, than=2.0)
    with pytest.raises(ValueError, match="would keep the worst checkpoint"):
        CausalLmMetricConfig(_target_="x", main="loss", greater_is_better=True)
    assert CausalLmMetricConfig(_target_="x", main="accuracy", greater_is_better=True).main == "accuracy"
