"""Cross-entropy over a vocabulary without the logits of a batch: some tokens at a time, gradients made with them.

Source: Wijmans et al. 2024, "Cut Your Losses in Large-Vocabulary Language Models", section 3, for the idea; the z-loss
is that of Chowdhery et al. 2022, "PaLM", section 5.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

IGNORED = -100
# On a CPU what stays in its caches, on a GPU what keeps it busy.
_ON_CPU, _ON_GPU = 2**19, 2**28


class LossSums(NamedTuple):
    """Sums over tokens, in float32. Train on `nll + z_loss`: both carry one gradient.

    Attributes:
        nll: negative log-likelihood of the targets.
        z_loss: its coefficient × the squared log-partition.
    """

    nll: Tensor
    z_loss: Tensor


def logits_at_once(*, on_cpu: bool) -> int:
    """How many logits are in memory at once, if a token has no more."""
    return _ON_CPU if on_cpu else _ON_GPU


def vocabulary_loss(hidden: Tensor, weight: Tensor, targets: Tensor, *, z_loss: float = 0.0) -> LossSums:
    """The sums of cross-entropy and z-loss, differentiable by `hidden` and `weight`.

    Args:
        hidden: (N, H).
        weight: (V, H), the output layer.
        targets: (N,); -100 is left out.
        z_loss: coefficient of the z-loss.
    """
    if torch.is_autocast_enabled(hidden.device.type):
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    sums: tuple[Tensor, Tensor] = _Chunked.apply(hidden, weight, targets, z_loss)  # type: ignore[no-untyped-call]
    return LossSums(*sums)


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, z_loss: float) -> tuple[Tensor, Tensor]:
        learns_hidden, learns_weight = ctx.needs_input_grad[:2]
        of_hidden = torch.empty_like(hidden) if learns_hidden else None
        of_weight = (
            torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32)) if learns_weight else None
        )
        matrix = weight.to(hidden.dtype)
        sums = torch.zeros(2, dtype=torch.promote_types(hidden.dtype, torch.float32), device=hidden.device)
        size = max(1, logits_at_once(on_cpu=hidden.is_cpu) // weight.shape[0])
        for start in range(0, len(targets), size):
            piece = slice(start, start + size)
            part, wanted = hidden[piece], targets[piece]
            counts = (wanted != IGNORED).to(sums.dtype)[:, None]
            place = wanted.clamp_min(0)[:, None]
            logits = torch.mm(part, matrix.T).to(sums.dtype)
            chosen = logits.gather(1, place)
            logs = torch.log_softmax(logits, dim=-1)
            told = logs.gather(1, place)
            partition = chosen - told
            sums[0] -= (told * counts).sum()
            sums[1] += (partition.square() * counts).sum() * z_loss
            if not (learns_hidden or learns_weight):
                continue
            slope = logs.exp_()
            if z_loss:
                slope.mul_(1 + 2 * z_loss * partition)
            slope.scatter_add_(1, place, torch.full_like(told, -1.0))
            slope = slope.mul_(counts).to(hidden.dtype)
            if of_hidden is not None:
                torch.mm(slope, matrix, out=of_hidden[piece])
            if of_weight is not None:
                _add_product(of_weight, slope, part)
        ctx.gradients = (of_hidden, None if of_weight is None else of_weight.to(weight.dtype))
        ctx.has_z_loss = bool(z_loss)
        nll, z_sum = sums.unbind()
        if not z_loss:
            ctx.mark_non_differentiable(z_sum)
        return nll.clone(), z_sum.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_nll: Tensor, of_z_loss: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.has_z_loss:
            torch._assert_async(of_nll == of_z_loss)  # one gradient was made for both
        held = (None if gradient is None else gradient.mul_(of_nll.to(gradient.dtype)) for gradient in ctx.gradients)
        del ctx.gradients
        return (*held, None, None)


def _add_product(total: Tensor, slope: Tensor, part: Tensor) -> None:
    if slope.dtype == total.dtype:
        total.addmm_(slope.T, part)
    else:
        total.add_(torch.mm(slope.T, part))
