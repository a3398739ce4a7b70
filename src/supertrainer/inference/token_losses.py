"""How well a language model tells given answers: the loss of every labelled token, without keeping logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from supertrainer.data.batching import evaluation_batches
from supertrainer.data.collation import IGNORED, EncodedRows, collate
from supertrainer.inference.generation import evaluating, forward_arguments
from supertrainer.metrics.exact import require_finite

LOGIT_BYTES = 512 * 2**20  # of a batch's logits in fp32; a batch is made of fewer rows where it would be more


@dataclass(frozen=True)
class TokenLosses:
    """The labelled tokens of a batch, row after row.

    Attributes:
        losses: cross-entropy of each token given those before it, (L,) float64 on the CPU.
        right: whether it was the likeliest one, (L,) bool on the CPU.
        counts: how many tokens each row has.
    """

    losses: Tensor
    right: Tensor
    counts: tuple[int, ...]


def predict_token_losses(
    model: nn.Module, rows: EncodedRows, *, pad_token_id: int, batch_size: int
) -> Iterator[tuple[TokenLosses, list[int]]]:
    """The loss of every labelled token of every row, longest rows first.

    A token is predicted from those before it, so the label of a row's first token is never counted. Logits are kept of
    one batch at a time, and only where a label follows.

    Args:
        model: put into eval mode, and back as it was at the end; its first parameter says the device.
        rows: encoded rows with `labels` (T,), -100 where none counts.
        pad_token_id: of the tokenizer.
        batch_size: rows in a batch at most.

    Yields:
        The losses, and the numbers of their rows.
    """
    vocabulary = int(model.get_output_embeddings().weight.shape[0])  # type: ignore[operator]
    with evaluating(model):
        for batch in evaluation_batches(rows.lengths, batch_size=batch_size):
            fitting = max(1, LOGIT_BYTES // (4 * vocabulary * int(rows.lengths[batch].max())))
            for start in range(0, len(batch), fitting):
                numbers = batch[start : start + fitting]
                yield _losses(model, rows, numbers, pad_token_id=pad_token_id), numbers


def _losses(model: nn.Module, rows: EncodedRows, numbers: Sequence[int], *, pad_token_id: int) -> TokenLosses:
    batch = collate([rows[number] for number in numbers], pad_token_id=pad_token_id)
    labels = batch.pop("labels")[:, 1:]
    counted = labels != IGNORED
    counts = tuple(counted.sum(dim=1).tolist())
    columns = counted.any(dim=0).nonzero().flatten()  # where some row has a label that the logits there predict
    if not len(columns):
        return TokenLosses(torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.bool), counts)
    device = next(model.parameters()).device
    kept = {"logits_to_keep": columns.to(device)} if "logits_to_keep" in forward_arguments(model) else {}
    # Entered anew for every batch: a generator that is left inside would switch gradients off for its caller.
    with torch.no_grad():
        inputs = {name: batch[name].to(device) for name in ("input_ids", "attention_mask")}
        logits: Tensor = model(**inputs, **kept, use_cache=False).logits
        logits = logits if kept else logits[:, columns.to(device)]
        place = counted[:, columns]
        flat, wanted = logits[place.to(device)].float(), labels[:, columns][place].to(device)
        require_finite(flat, batch=numbers[0], what="token")
        losses = F.cross_entropy(flat, wanted, reduction="none")
        return TokenLosses(losses.double().cpu(), (flat.argmax(dim=1) == wanted).cpu(), counts)
