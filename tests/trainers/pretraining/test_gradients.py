"""The norm of the gradients: what clipping and the guard go by."""

from __future__ import annotations

import pytest
import torch

from supertrainer.trainers.pretraining.gradients import total_norm


@pytest.mark.parametrize("parts", [1, 7, 1000])
def test_how_gradients_are_grouped_does_not_show_in_their_norm(parts: int) -> None:
    """A CPU's own norm of the whole is off by 1.7e-4, and of seven parts by 8e-6."""
    gradients = 1e-3 * torch.randn(6_000_000, generator=torch.Generator().manual_seed(0))
    norm = total_norm(gradients.chunk(parts))
    assert norm.dtype == torch.float32
    assert norm == gradients.double().square().sum().sqrt().float()


def test_the_norm_of_a_gradient_that_is_not_finite_is_not_finite() -> None:
    assert torch.isnan(total_norm([torch.ones(3), torch.tensor([1.0, float("nan")])]))
    assert torch.isinf(total_norm([torch.ones(3), torch.tensor([1.0, float("inf")])]))
