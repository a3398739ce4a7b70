"""The one loop over encoded rows that evaluation, benchmarks and inference share."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from supertrainer.data.batching import GHOST, evaluation_batches
from supertrainer.data.collation import EncodedRows, collate


def predict_logits(
    model: nn.Module,
    rows: EncodedRows,
    *,
    pad_token_id: int,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[tuple[Tensor, list[int]]]:
    """The logits of every row of this process, batch by batch, longest rows first.

    A batch is as wide as its longest row, and rows of like length share one, so little is padded. Nothing is kept of a
    batch that was taken: memory doesn't grow with rows. In fp32, a row's logits in a batch differ from those alone by
    rounding only, 1e-5 at most of the greatest logit.

    Args:
        model: put into eval mode, and back as it was at the end; its first parameter says the device.
        rows: encoded rows; their labels, where there are any, aren't shown to the model.
        pad_token_id: of the tokenizer.
        batch_size: rows in a batch.
        rank: this process.
        world_size: number of processes; each row comes from one of them.

    Yields:
        Logits (B, C) on the model's device, and the numbers of their rows.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        for numbers in evaluation_batches(rows.lengths, batch_size=batch_size, rank=rank, world_size=world_size):
            if numbers == [GHOST]:
                continue
            batch = collate([rows[number] for number in numbers], pad_token_id=pad_token_id)
            batch.pop("labels", None)
            # Entered anew for every batch: a generator that is left inside would switch gradients off for its caller.
            with torch.no_grad():
                logits = model(**{name: tensor.to(device) for name, tensor in batch.items()}).logits
            yield logits, numbers
    finally:
        model.train(was_training)
