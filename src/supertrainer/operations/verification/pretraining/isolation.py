"""Documents in a row don't see each other: packed, they are what each is by itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from supertrainer.data.streams.rows import NOT_LEARNT, Rows
from supertrainer.operations.verification.padding import distance
from supertrainer.operations.verification.pretraining.documents import MOST_CUTS, pieces
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, relative, share_of
from supertrainer.operations.verification.rows import Row, none_of, not_applicable, same_bits, within
from supertrainer.operations.verification.workbench import Weights

BOUND = 1e-5
_STEPS = 4


def check_isolation(bench: PretrainWorkbench) -> Iterator[Row]:
    """Compares a row of several documents with its documents one by one: logits, loss, gradients; changes one of them
    and looks at the others; and looks for targets beyond a document's end in the stream's own rows.
    """
    if not bench.config.dataset.isolate_documents:
        yield not_applicable("documents", "dataset.isolate_documents=false: documents in a row see each other")
        return
    rows, built = bench.rows, bench.built()
    place = MOST_CUTS - 1  # the row with the most cuts
    assert rows.input_documents is not None, "they are isolated"
    documents = rows.input_documents[place]
    parts, device = list(pieces(documents)), built.layout.device
    tokens, targets, numbers = (
        torch.from_numpy(np.ascontiguousarray(array[place])).to(device)[None]
        for array in (rows.inputs, rows.targets, rows.input_documents)
    )
    what = f"{len(parts)} documents in a row = one by one"
    with torch.no_grad():
        packed = built.decoder(tokens, documents=numbers)[0]
        alone = [built.decoder(tokens[:, part])[0] for part in parts]
        other = tokens.clone()
        other[:, parts[0]] = (other[:, parts[0]] + 1) % bench.vocab_size
        changed = built.decoder(other, documents=numbers)[0]
    yield within(f"documents: {what}: logits", distance([packed[part] for part in parts], alone), bound=BOUND)
    loss, gradients = _learnt(built.decoder, [(tokens, targets, numbers)])
    losses, added = _learnt(built.decoder, [(tokens[:, part], targets[:, part], None) for part in parts])
    yield within(f"documents: {what}: loss", relative(loss, losses), bound=BOUND)
    yield within(f"documents: {what}: gradients", share_of(gradients, added), bound=BOUND)
    rest = slice(parts[0].stop, None)
    differ = int((changed[rest] != packed[rest]).sum())
    yield same_bits("documents: logits of the others where the first is another", differ, packed[rest].numel())
    beyond, ends = _targets_beyond([*bench.steps(_STEPS), rows])
    yield none_of("documents: ends with a target beyond them", beyond, ends)


def _learnt(decoder: nn.Module, parts: list[tuple[Tensor, Tensor, Tensor | None]]) -> tuple[float, Weights]:
    """The sum of the losses of parts, and its gradients."""
    total = 0.0
    for tokens, targets, documents in parts:
        sums = decoder(tokens, targets=targets, documents=documents)
        sums.nll.backward()
        total += float(sums.nll.detach())
    gradients = {name: p.grad.cpu().clone() for name, p in decoder.named_parameters() if p.grad is not None}
    decoder.zero_grad(set_to_none=True)
    return total, gradients


def _targets_beyond(steps: list[Rows]) -> tuple[int, int]:
    """Of all places where another document follows, how many ask for its first token."""
    beyond = ends = 0
    for rows in steps:
        is_end = rows.documents[:, 1:] != rows.documents[:, :-1]
        ends += int(is_end.sum())
        beyond += int((rows.targets[is_end] != NOT_LEARNT).sum())
    return beyond, ends
