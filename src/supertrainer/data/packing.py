"""Several texts in one row, so that little is padded: which ones share a row, and how a model keeps them apart.

Every document starts anew at position 0, nothing is predicted across a boundary, and a batch has no attention mask: a
model of transformers that gets restarting positions, no mask and no cache lets nobody look into another document, on
every attention implementation. Padding is a document of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from supertrainer.core.errors import DataError
from supertrainer.data.batching import GHOST
from supertrainer.data.collation import IGNORED, EncodedRows, collate


@dataclass(frozen=True)
class PackPlan:
    """Which rows make up every pack.

    Attributes:
        rows: numbers of the rows, pack after pack, (N,): each once.
        starts: where each pack starts in `rows`, and N, (P + 1,).
        capacity: tokens that a pack holds.
    """

    rows: np.ndarray
    starts: np.ndarray
    capacity: int

    def __len__(self) -> int:
        return len(self.starts) - 1

    def of(self, pack: int) -> np.ndarray:
        """The rows of one pack, longest first."""
        return self.rows[self.starts[pack] : self.starts[pack + 1]]


def first_fit_decreasing(lengths: Sequence[int] | np.ndarray, *, capacity: int, seed: int) -> PackPlan:
    """Puts every row into the first pack that has room for it, longest rows first: a function of its arguments alone.

    At most 11/9 of the fewest packs, and one more. Rows of the same length come in an order that the seed decides. The
    first pack with room is found by descending a tree of the greatest room below each node: O(N log N).
    Source: Johnson 1973, "Near-optimal bin packing algorithms".

    Args:
        lengths: tokens of each row, (N,).
        capacity: tokens that a pack holds.
        seed: of the order of rows of the same length.

    Raises:
        DataError: a row is longer than a pack.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    if len(sizes) and int(sizes.max()) > capacity:
        longest = int(sizes.argmax())
        raise DataError(
            f"row {longest} has {int(sizes[longest])} tokens, more than the {capacity} of a pack.",
            why="a document is never cut in two.",
            fix=f"dataset.max_length={int(sizes[longest])} or more, which is the length of a pack too.",
        )
    # Raw draws of the bit generator: numpy promises that they never change, unlike those of its distributions.
    draws = np.random.PCG64(np.random.SeedSequence([seed, len(sizes)]))
    order = np.argsort(draws.random_raw(len(sizes)), kind="stable")
    order = order[np.argsort(-sizes[order], kind="stable")]
    packs = _first_fit(sizes[order].tolist(), capacity=capacity)
    rows = order[np.argsort(packs, kind="stable")]
    return PackPlan(rows, np.concatenate([[0], np.cumsum(np.bincount(packs))]).astype(np.int64), capacity)


def pack_lengths(lengths: np.ndarray, *, capacity: int, seed: int) -> np.ndarray:
    """Tokens of every pack that rows of these lengths make, (P,).

    Raises:
        DataError: a row is longer than a pack.
    """
    plan = first_fit_decreasing(lengths, capacity=capacity, seed=seed)
    return np.add.reduceat(lengths[plan.rows], plan.starts[:-1])


def one_row_a_pack(lengths: Sequence[int] | np.ndarray) -> PackPlan:
    """Every row by itself."""
    count = len(lengths)
    return PackPlan(np.arange(count), np.arange(count + 1), int(np.max(lengths, initial=0)))


def _first_fit(sizes: Sequence[int], *, capacity: int) -> np.ndarray:
    """The pack of each of these rows, in their order, (N,)."""
    leaves = 1 << max(len(sizes) - 1, 0).bit_length()
    room = [capacity] * (2 * leaves)  # a heap: node i has the children 2i and 2i + 1, packs are the leaves
    packs = np.empty(len(sizes), dtype=np.int64)
    for index, size in enumerate(sizes):
        node = 1
        while node < leaves:
            node *= 2
            if room[node] < size:
                node += 1
        packs[index] = node - leaves
        room[node] -= size
        while node > 1:
            node //= 2
            greatest = max(room[2 * node], room[2 * node + 1])
            if room[node] == greatest:
                break
            room[node] = greatest
    return packs


class PackedRows:
    """Packs as a map-style torch dataset, of the form of `EncodedRows`: a pack is a row.

    Index `GHOST` is a copy of the shortest row with labels that no loss counts.

    Attributes:
        lengths: tokens of each pack, (P,).
        plan: the rows of each.
    """

    documents = None  # nothing is predicted for a text as a whole

    def __init__(self, rows: EncodedRows, plan: PackPlan, *, flat: bool) -> None:
        """
        Args:
            rows: with `labels` of every token, not shifted.
            plan: which of them share a pack.
            flat: whether a micro-batch is one row of all its packs, without padding, as flash attention and
                padding_free want it; else a row a pack, padded to the longest.
        """
        self._rows = rows
        self._flat = flat
        self.plan = plan
        self.lengths = np.add.reduceat(rows.lengths[plan.rows], plan.starts[:-1])
        self.unit_lengths = self.lengths

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One pack: `input_ids`, `position_ids` and `labels`, (T,); the first token of a document has no label."""
        members = [GHOST] if index == GHOST else self.plan.of(index).tolist()
        parts = [self._rows[row] for row in members]
        labels = np.concatenate([part["labels"] for part in parts])
        lengths = [len(part["input_ids"]) for part in parts]
        labels[np.cumsum([0, *lengths[:-1]])] = IGNORED
        return {
            "input_ids": np.concatenate([part["input_ids"] for part in parts]),
            "position_ids": np.concatenate([np.arange(length) for length in lengths]),
            "labels": labels,
        }

    def collate(self, features: Sequence[Mapping[str, Any]], *, pad_token_id: int) -> dict[str, torch.Tensor]:
        """A micro-batch of packs.

        Returns:
            int64 tensors `input_ids`, `position_ids` and `labels`: (B, T), padded on the right, or (1, T) where packs
            lie in one row.
        """
        if not self._flat:
            return collate(features, pad_token_id=pad_token_id)
        return {
            name: torch.from_numpy(np.concatenate([feature[name] for feature in features]).astype(np.int64))[None]
            for name in ("input_ids", "position_ids", "labels")
        }
