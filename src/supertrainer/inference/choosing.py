"""The next token of each row, from its logits: the likeliest, or one drawn with the row's own random numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from supertrainer.core.errors import SupertrainerError
from supertrainer.inference.schema import GenerationConfig


class TokenChooser:
    """Chooses tokens for a batch of rows. What a row draws depends on its seed alone, never on the rows beside it, and
    no global random state is touched.
    """

    def __init__(self, config: GenerationConfig, *, prompts: Sequence[Sequence[int]], seeds: Sequence[int]) -> None:
        """
        Args:
            config: how tokens are chosen.
            prompts: the token ids of each row's prompt, which a repetition penalty counts.
            seeds: of each row.
        """
        self._config = config
        self._prompts = prompts
        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        self._seen: Tensor | None = None  # (rows, V): which tokens a row has had

    def __call__(self, logits: Tensor, rows: Sequence[int]) -> list[int]:
        """The next token of each of these rows.

        Args:
            logits: (B, V), any floating dtype, any device.
            rows: the numbers of the B rows among the prompts.

        Raises:
            SupertrainerError: a row's logits hold NaN.
        """
        logits = logits.detach().float()
        if logits.isnan().any():
            raise SupertrainerError(
                "the model's logits are NaN: no token can be chosen from them.",
                why="its weights diverged in training, or a 16-bit type is too narrow for them.",
                fix="take an earlier checkpoint, or engine.model_kwargs.dtype=float32.",
            )
        config = self._config
        if config.repetition_penalty != 1.0:
            logits = self._penalised(logits, rows)
        if config.temperature == 0:
            tokens = logits.argmax(dim=-1)
        else:
            if logits.is_cuda and torch.are_deterministic_algorithms_enabled():
                logits = logits.cpu()  # a sum along rows has no deterministic kernel on a GPU
            draws = torch.stack([torch.rand((), generator=self._generators[row], dtype=torch.float64) for row in rows])
            tokens = draw(logits, config, draws=draws)
        chosen: list[int] = tokens.tolist()
        if self._seen is not None:
            self._seen[list(rows), chosen] = True
        return chosen

    def _penalised(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """Source: Keskar et al. 2019 (arXiv 1909.05858), section 4.1, with the sign taken care of."""
        if self._seen is None:
            self._seen = torch.zeros(len(self._prompts), logits.shape[-1], dtype=torch.bool, device=logits.device)
            for row, prompt in enumerate(self._prompts):
                self._seen[row, list(prompt)] = True
        penalty = self._config.repetition_penalty
        less = torch.where(logits < 0, logits * penalty, logits / penalty)
        return torch.where(self._seen[list(rows)], less, logits)


def choose_tokens(
    logits: Tensor,
    *,
    held: Sequence[int],
    alive: Sequence[int],
    choose: Callable[[Tensor, Sequence[int]], list[int]],
    is_done: Callable[[int, int], bool],
) -> tuple[dict[int, int], list[int]]:
    """A step's tokens of the rows that go on.

    Args:
        logits: (B, V), of the rows in the batch.
        held: numbers of these B rows.
        alive: those of them that go on.
        choose: the next tokens, from logits and the rows that they are of.
        is_done: takes a row and its new token; whether the row has come to its end.

    Returns:
        Row -> its token, and the rows that still go on.
    """
    places = [place for place, row in enumerate(held) if row in alive]
    rows = [held[place] for place in places]
    chosen = dict(zip(rows, choose(logits[places], rows), strict=True))
    return chosen, [row for row, token in chosen.items() if not is_done(row, token)]


def draw(logits: Tensor, config: GenerationConfig, *, draws: Tensor) -> Tensor:
    """Tokens by the inverse of the cumulated probabilities of those that temperature, top-k, top-p and min-p leave.

    Args:
        logits: (B, V) float32.
        config: temperature over 0.
        draws: (B,) float64 in [0, 1).

    Returns:
        (B,) int64.
    """
    probabilities, order = left_over(logits, config)
    cumulated = probabilities.cumsum(dim=-1)
    wanted = draws.to(logits.device)[:, None] * cumulated[:, -1:]
    places = torch.searchsorted(cumulated, wanted, right=True)
    last = (probabilities > 0).sum(dim=-1, keepdim=True) - 1  # rounding may put a draw past the end
    return order.gather(-1, places.minimum(last)).squeeze(-1)


def left_over(logits: Tensor, config: GenerationConfig) -> tuple[Tensor, Tensor]:
    """Probabilities, the greatest first, with 0 for tokens that are left out, and the tokens they belong to.

    Returns:
        (B, K) float64, not normed again, and (B, K) int64.
    """
    size = logits.shape[-1]
    kept = min(config.top_k, size) if config.top_k else size
    scaled = logits.double() / config.temperature
    if kept < size:
        ordered, order = scaled.topk(kept, dim=-1)
    else:
        ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=-1)
    keep = torch.ones_like(probabilities, dtype=torch.bool)
    if config.top_p < 1:
        keep &= probabilities.cumsum(dim=-1) - probabilities < config.top_p
    if config.min_p:
        keep &= probabilities >= config.min_p * probabilities[:, :1]
    keep[:, 0] = True
    return probabilities.masked_fill(~keep, 0.0), order


def seed_of(seed: int, *, row: int, sample: int) -> int:
    """The seed of one answer: another one for every row and sample, equal on every machine."""
    digest = hashlib.sha256(f"{seed}:{row}:{sample}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
