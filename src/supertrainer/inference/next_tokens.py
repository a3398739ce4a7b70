"""What a causal language model thinks of the next tokens of rows, without the logits of a whole batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from supertrainer.data.batching import GHOST, evaluation_batches
from supertrainer.data.collation import IGNORED, EncodedRows
from supertrainer.models.output import OutputTap

# Logits that exist at once. A GPU wants larger products.
CHUNK_LOGITS = 2**22
CHUNK_LOGITS_GPU = 2**26


def labelled(states: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The states, or logits, that predict a labelled token, and these tokens.

    Args:
        states: (B, T, H).
        labels: (B, T), not shifted: what is predicted at a position is the label of the next one; -100 is no label.

    Returns:
        (N, H) and (N,), row after row.
    """
    predicted = labels[:, 1:] != IGNORED
    return states[:, :-1][predicted], labels[:, 1:][predicted]


def chunks(states: Tensor, *, vocabulary: int, on_gpu: bool | None = None) -> Iterator[slice]:
    """Cuts states (N, H) so that the logits of a piece are few.

    Args:
        vocabulary: logits of a token.
        on_gpu: whether pieces are a GPU's; None: by where the states are.
    """
    at_once = CHUNK_LOGITS_GPU if (states.is_cuda if on_gpu is None else on_gpu) else CHUNK_LOGITS
    size = max(at_once // vocabulary, 1)
    return (slice(start, start + size) for start in range(0, len(states), size))


def next_token_logits(
    model: nn.Module,
    rows: EncodedRows,
    *,
    tap: OutputTap | None,
    pad_token_id: int,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """The logits of every labelled token of the rows of this process, a chunk at a time.

    A batch is padded to its longest row, and padding comes last, where no token sees it. Nothing is kept of a chunk
    that was taken: memory doesn't grow with rows, and with the batch only by its hidden states.

    Args:
        model: put into eval mode, and back as it was at the end; its first parameter says the device.
        rows: encoded rows with `labels`, not shifted.
        tap: of the model; None where its own logits have to be taken, of a batch at once.
        pad_token_id: of the tokenizer.
        batch_size: rows in a batch.
        rank: this process.
        world_size: number of processes; each row comes from one of them.

    Yields:
        Logits (N, V) in float32 on the model's device, and the tokens that were there, (N,).
    """
    device = next(model.parameters()).device

    def states_of(batch: dict[str, Tensor]) -> Tensor:
        if tap is None:
            logits: Tensor = model(**batch, use_cache=False).logits
            return logits
        with tap.open():
            model(**batch, use_cache=False)
            hidden = tap.take()
        assert hidden is not None, "the tap is open"
        return hidden

    was_training = model.training
    model.eval()
    try:
        for numbers in evaluation_batches(rows.unit_lengths, batch_size=batch_size, rank=rank, world_size=world_size):
            if numbers == [GHOST]:
                continue
            batch = rows.collate([rows[number] for number in numbers], pad_token_id=pad_token_id)
            batch = {name: tensor.to(device) for name, tensor in batch.items()}
            labels = batch.pop("labels")
            # Entered anew each time: a generator that is left inside would switch gradients off for its caller.
            with torch.no_grad():
                states, targets = labelled(states_of(batch), labels)
            if tap is None:
                yield states.float(), targets
                continue
            for piece in chunks(states, vocabulary=tap.vocabulary):
                with torch.no_grad():
                    logits = tap.logits(states[piece])
                yield logits, targets[piece]
    finally:
        model.train(was_training)
