"""Decoding by a model whose encoder reads the prompt once, and whose decoder writes the answer beside its states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from supertrainer.inference.choosing import choose_tokens
from supertrainer.inference.ends import unwrapped
from supertrainer.inference.first_pass import on_device


def is_encoder_decoder(model: nn.Module) -> bool:
    """Whether an encoder reads what a decoder answers to."""
    return bool(unwrapped(model).config.is_encoder_decoder)


def decode_beside_encoder(
    model: nn.Module,
    rows: int,
    *,
    start: Sequence[int],
    choose: Callable[[Tensor, Sequence[int]], list[int]],
    is_done: Callable[[int, int], bool],
    first: Mapping[str, Tensor],
    cache_name: str,
) -> Iterator[None]:
    """One step of decoding an item: rows that are done leave the batch once half of it is.

    Args:
        model: in eval mode.
        rows: how many.
        start: the tokens that every answer is written behind.
        choose: the next tokens, from logits (B, V) and the rows that they are of.
        is_done: takes the row and its new token; whether the row has come to its end.
        first: what the encoder reads of the prompts, padded on the right.
        cache_name: what the model calls its keys and values.
    """
    given = {name: on_device(values, model) for name, values in first.items()}
    mask = given["attention_mask"]
    tokens = torch.tensor([list(start)] * rows, device=mask.device)
    alive = list(range(rows))  # of the rows in the batch, which go on
    held = list(range(rows))  # the rows in the batch
    states: Tensor | None = None
    cache = None
    while True:
        if states is not None:
            given = {"encoder_outputs": BaseModelOutput(last_hidden_state=states), "attention_mask": mask}
        # Entered anew for every step: a generator that is left inside would switch gradients off for its caller.
        with torch.no_grad():
            output = model(**given, decoder_input_ids=tokens, use_cache=True, **{cache_name: cache})
        states = output.encoder_last_hidden_state if states is None else states
        cache = output[cache_name]
        chosen, alive = choose_tokens(output.logits[:, -1], held=held, alive=alive, choose=choose, is_done=is_done)
        yield
        if not alive:
            return
        if 2 * len(alive) <= len(held):
            kept = torch.tensor([held.index(row) for row in alive], device=mask.device)
            cache.batch_select_indices(kept)
            mask, states, held = mask[kept], states[kept], list(alive)
        tokens = torch.tensor([[chosen.get(row, 0)] for row in held], device=mask.device)
