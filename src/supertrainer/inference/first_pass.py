"""What a model reads first of a batch of prompts: tokens behind a mask, their positions, and pictures between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from supertrainer.inference.ends import unwrapped

BatchOf = Callable[[Sequence[int]], Mapping[str, Tensor]]
"""The numbers of prompts -> what a model reads of them, padded on the left, of an encoder on the right: `input_ids`
and `attention_mask` (B, T), and what else its architecture takes in the first pass: pixels, sizes, grids, token types.
"""


def left_padded(prompts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` (B, T): the last column holds every row's last token."""
    width = max(map(len, prompts))
    # What stands under the mask doesn't matter.
    tokens = torch.tensor([[0] * (width - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return {"input_ids": tokens, "attention_mask": mask}


def right_padded(prompts: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` (B, T): the first column holds every row's first token, as for an encoder."""
    width = max(map(len, prompts))
    tokens = torch.tensor([list(prompt) + [0] * (width - len(prompt)) for prompt in prompts])
    mask = torch.tensor([[1] * len(prompt) + [0] * (width - len(prompt)) for prompt in prompts])
    return {"input_ids": tokens, "attention_mask": mask}


def first_positions(model: nn.Module, tokens: Tensor, *, mask: Tensor, seen: Mapping[str, Tensor]) -> Tensor:
    """The positions of a batch, counted from each row's own first token.

    Args:
        model: a wrapped one too.
        tokens: (B, T), padded on the left.
        mask: (B, T).
        seen: what else the model reads of the batch.

    Returns:
        (B, T); of models that count pictures by time, height and width, where there is a picture, (3, B, T).
    """
    inner: Any = unwrapped(model).base_model
    if "image_grid_thw" in seen and "get_rope_index" in dir(type(inner)):
        kinds = {name: seen[name] for name in ("image_grid_thw", "mm_token_type_ids") if name in seen}
        positions: Tensor = inner.get_rope_index(input_ids=tokens, attention_mask=mask, **kinds)[0]
        return positions
    return (mask.cumsum(dim=1) - 1).clamp(min=0)


def on_device(values: Tensor, model: nn.Module) -> Tensor:
    """Values where the model is; fractions in its own precision."""
    inner = unwrapped(model)
    return values.to(inner.device, inner.dtype if values.is_floating_point() else None)
