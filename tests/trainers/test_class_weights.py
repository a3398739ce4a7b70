"""Weights of classes: by hand, as torch's weighted mean, and the same under any split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from supertrainer.core.errors import ConfigError
from supertrainer.trainers.class_weights import balanced, by_name
from supertrainer.trainers.losses import objective_of
from tiny_models import save_tiny
from tiny_training import head_trainer


def test_balanced_weights_by_hand() -> None:
    assert balanced([0, 0, 0, 1], task="sequence_classification", num_labels=3) == [4 / 6, 2.0, 1.0]
    assert balanced([[0, 0], [0, 1]], task="token_classification", num_labels=2) == [4 / 6, 2.0]
    assert balanced([[1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], task="multi_label", num_labels=2) == [0.5, 1.0]


def test_weights_are_given_by_name() -> None:
    assert by_name({"good": 3.0}, ("bad", "good")) == [1.0, 3.0]
    with pytest.raises(ConfigError, match=r"class_weights\.goood=3: there is no such label(?s:.*)good"):
        by_name({"goood": 3.0}, ("bad", "good"))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_step_is_torchs_weighted_mean(smoothing: float) -> None:
    logits, labels, weights = torch.randn(8, 3), torch.tensor([0, 2, -100, 1, 1, 0, -100, 2]), [0.5, 2.0, 3.0]
    objective = objective_of("sequence_classification", label_smoothing=smoothing, class_weights=weights)
    expected = F.cross_entropy(logits, labels, weight=torch.tensor(weights), label_smoothing=smoothing)
    parts = [slice(0, 3), slice(3, 4), slice(4, 8)]
    total = sum(float(objective.summed(logits[part], labels[part])) for part in parts)
    weight = sum(float(objective.weight(labels[part])) for part in parts)
    assert total / weight == pytest.approx(float(expected), rel=1e-5)


def test_several_labels_are_divided_by_the_sum_of_their_weights() -> None:
    """Logits of 0 cost log 2 each; a label of weight 3 that applies counts as three of them, in the mean too."""
    objective = objective_of("multi_label", class_weights=[1.0, 3.0])
    labels = torch.tensor([[0.0, 1.0], [1.0, 0.0], [float("nan"), float("nan")]])
    assert float(objective.weight(labels)) == 1 + 3 + 1 + 1
    total = float(objective.summed(torch.zeros(3, 2), labels))
    assert total / 6 == pytest.approx(0.6931471805599453, rel=1e-6)


def test_a_row_without_a_number_adds_nothing() -> None:
    objective = objective_of("regression")
    labels = torch.tensor([1.0, float("nan")])
    logits = torch.tensor([[3.0], [5.0]], requires_grad=True)
    total = objective.summed(logits, labels)
    total.backward()
    assert (float(total.detach()), float(objective.weight(labels))) == (4.0, 1.0)
    assert logits.grad is not None
    assert logits.grad.flatten().tolist() == [4.0, 0.0]


@pytest.mark.parametrize("task", ["sequence_classification", "multi_label", "token_classification"])
def test_the_micro_batch_does_not_show_with_weights(tmp_path: Path, task: Any) -> None:
    source = save_tiny(tmp_path / "source")
    losses = []
    for micro in (8, 1):
        kwargs = {"per_device_train_batch_size": micro, "optim": "sgd", "learning_rate": 0.1, "logging_steps": 3}
        trainer = head_trainer(
            tmp_path / f"run-{micro}", source, task, class_weights="balanced", training_kwargs=kwargs, batching="random"
        )
        assert len(set(trainer.class_weights)) > 1
        trainer.train()
        rows = (tmp_path / f"run-{micro}" / "metrics.jsonl").read_text().splitlines()
        losses.append([row.split('"loss": ')[1].split(",")[0] for row in rows])
    assert [float(loss) for loss in losses[0]] == pytest.approx([float(loss) for loss in losses[1]], rel=1e-5)
