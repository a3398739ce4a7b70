"""The one loop over encoded rows that evaluation, benchmarks and inference share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from supertrainer.data.batching import GHOST, evaluation_batches
from supertrainer.data.collation import IGNORED, EncodedRows, collate
from supertrainer.data.masking import MaskedRows


def predict_logits(
    model: nn.Module,
    rows: EncodedRows | MaskedRows,
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

    Where rows are windows of texts, what is predicted is the text: its windows go through the model, `batch_size` at
    once, and their logits become one by `rows.pooling`. All windows of a text are on one process.

    Args:
        model: put into eval mode, and back as it was at the end; its first parameter says the device.
        rows: encoded rows; their labels, where there are any, aren't shown to the model.
        pad_token_id: of the tokenizer.
        batch_size: rows in a batch.
        rank: this process.
        world_size: number of processes; each row comes from one of them.

    Yields:
        Logits on the model's device, and the numbers of their rows, or texts: (B, C); where tokens have labels (L, C),
        those of the labelled tokens alone, row after row.
    """
    device = next(model.parameters()).device

    def forward(numbers: Sequence[int]) -> Tensor:
        batch = collate([rows[number] for number in numbers], pad_token_id=pad_token_id)
        labels = batch.pop("labels", None)
        # Entered anew for every batch: a generator that is left inside would switch gradients off for its caller.
        with torch.no_grad():
            logits: Tensor = model(**{name: tensor.to(device) for name, tensor in batch.items()}).logits
        of_tokens = labels is not None and labels.ndim == 2 and not labels.is_floating_point()
        return logits[(labels != IGNORED).to(device)] if of_tokens else logits

    was_training = model.training
    model.eval()
    try:
        for numbers in evaluation_batches(rows.unit_lengths, batch_size=batch_size, rank=rank, world_size=world_size):
            if numbers != [GHOST]:
                yield _of_units(forward, rows, numbers, batch_size=batch_size), numbers
    finally:
        model.train(was_training)


def _of_units(
    forward: Callable[[Sequence[int]], Tensor],
    rows: EncodedRows | MaskedRows,
    numbers: Sequence[int],
    *,
    batch_size: int,
) -> Tensor:
    """The logits of rows; or of texts, from those of their windows."""
    if not isinstance(rows, EncodedRows) or rows.documents is None:
        return forward(numbers)
    windows = [np.arange(rows.documents[number], rows.documents[number + 1]) for number in numbers]
    flat = np.concatenate(windows).tolist()
    logits = torch.cat([forward(flat[start : start + batch_size]) for start in range(0, len(flat), batch_size)])
    parts = logits.split([len(part) for part in windows])
    return torch.stack([part.amax(dim=0) if rows.pooling == "max" else part.mean(dim=0) for part in parts])
