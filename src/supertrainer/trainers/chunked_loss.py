"""Cross-entropy of a language model without the logits of a batch: some tokens at a time, gradients made with them.

Only hidden states that have a token to predict go through the output layer, a chunk of them at once. The gradient of a
chunk is computed as soon as its loss is, so nothing is computed twice and no more than one chunk's logits exist.
Source: Wijmans et al. 2024, "Cut Your Losses in Large-Vocabulary Language Models", section 3, for the idea.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from supertrainer.data.collation import IGNORED
from supertrainer.inference.next_tokens import chunks, labelled
from supertrainer.models.output import OutputTap
from supertrainer.trainers.losses import Objective, summed_cross_entropy, wide


def causal_objective(tap: OutputTap | None, *, label_smoothing: float = 0.0) -> Objective:
    """The objective of a causal language model: what is predicted at a position is the label of the next one.

    Args:
        tap: of the model; None where its own logits have to be taken.
        label_smoothing: share of the target that is spread over the vocabulary.
    """
    return Objective(
        functools.partial(_summed, tap=tap, label_smoothing=label_smoothing),
        next_token_count,
    )


def next_token_count(labels: Tensor) -> Tensor:
    """How many labels are predicted: all but those of the first position, a scalar in float64."""
    return (labels[:, 1:] != IGNORED).sum().double()


def summed_next_token_loss(
    hidden: Tensor, targets: Tensor, *, tap: OutputTap, label_smoothing: float = 0.0, on_gpu: bool | None = None
) -> Tensor:
    """The sum of cross-entropy over tokens, differentiable by the hidden states and by what is trained of the output.

    Args:
        hidden: (N, H).
        targets: (N,), without -100.
        tap: makes logits of hidden states.
        label_smoothing: share of the target that is spread over the vocabulary.
        on_gpu: whether chunks are as large as a GPU's; None: by where the hidden states are.

    Returns:
        A scalar in float32 at least; 0 with a gradient of zeros where there is no token.
    """
    trained = [parameter for parameter in tap.head.parameters() if parameter.requires_grad]

    def summed(piece: Tensor, tokens: Tensor) -> Tensor:
        return F.cross_entropy(tap.logits(piece), tokens, reduction="sum", label_smoothing=label_smoothing)

    pieces = chunks(hidden, vocabulary=tap.vocabulary, on_gpu=on_gpu)
    total: Tensor = _ChunkedSum.apply(summed, hidden, targets, pieces, *trained)  # type: ignore[no-untyped-call]
    return total


class _ChunkedSum(torch.autograd.Function):
    """The sum of a loss over chunks of hidden states; gradients are made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        summed: Callable[[Tensor, Tensor], Tensor],
        hidden: Tensor,
        targets: Tensor,
        pieces: Iterable[slice],
        *trained: Tensor,
    ) -> Tensor:
        total = torch.zeros((), dtype=wide(hidden.dtype), device=hidden.device)
        learns = ctx.needs_input_grad[1]
        wanted = [parameter for parameter, needed in zip(trained, ctx.needs_input_grad[4:], strict=True) if needed]
        of_hidden = torch.zeros_like(hidden) if learns else None
        # In float32 though the weights be narrower: a vocabulary's gradient is the sum of many chunks.
        sums = [torch.zeros_like(parameter, dtype=wide(parameter.dtype)) for parameter in wanted]
        for piece in pieces:
            with torch.enable_grad():
                part = hidden[piece].detach().requires_grad_(learns)
                loss = summed(part, targets[piece])
            total += loss.detach()
            if learns or wanted:
                asked = [part, *wanted] if learns else wanted
                gradients = list(torch.autograd.grad(loss, asked))
                if of_hidden is not None:
                    of_hidden[piece] = gradients.pop(0)
                for held, gradient in zip(sums, gradients, strict=True):
                    held += gradient
        found = iter(sums)
        of_trained = [
            next(found).to(parameter.dtype) if needed else None
            for parameter, needed in zip(trained, ctx.needs_input_grad[4:], strict=True)
        ]
        ctx.gradients = (of_hidden, *of_trained)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, *of_trained = (None if held is None else held.mul_(outer.to(held.dtype)) for held in ctx.gradients)
        del ctx.gradients
        return (None, of_hidden, None, None, *of_trained)


def _summed(logits: Tensor, labels: Tensor, *, tap: OutputTap | None, label_smoothing: float) -> Tensor:
    hidden = None if tap is None else tap.take()
    if tap is None or hidden is None:
        return summed_cross_entropy(logits[:, :-1], labels[:, 1:], label_smoothing=label_smoothing)
    wanted, targets = labelled(hidden, labels)
    return summed_next_token_loss(wanted, targets, tap=tap, label_smoothing=label_smoothing)
