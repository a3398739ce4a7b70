"""Token ids -> padded tensors, fast: rows are views into flat arrays, and a batch is filled in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from supertrainer.data.batching import GHOST

if TYPE_CHECKING:
    import datasets

IGNORED = -100  # a label that no loss counts
MODEL_INPUTS = ("input_ids", "token_type_ids", "labels")


class EncodedRows:
    """Rows of `encode` as a map-style torch dataset, held as one flat array a column.

    Index `GHOST` is a copy of the shortest row with labels that no loss counts.
    """

    def __init__(self, encoded: datasets.Dataset) -> None:
        import pyarrow as pa

        table = encoded.with_format("arrow")[:]
        self._flat: dict[str, np.ndarray] = {}
        self._starts: dict[str, np.ndarray] = {}
        self._scalars: dict[str, np.ndarray] = {}
        for name in (name for name in MODEL_INPUTS if name in table.column_names):
            column = table.column(name).combine_chunks()
            if pa.types.is_integer(column.type):
                self._scalars[name] = column.to_numpy()
                continue
            self._flat[name] = column.flatten().to_numpy()
            self._starts[name] = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())])
        self.lengths = np.diff(self._starts["input_ids"])  # tokens of each row, (N,)
        self._shortest = int(self.lengths.argmin())

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row: `input_ids` and `token_type_ids` (T,) as views, `labels` an int or (T,)."""
        row = self._shortest if index == GHOST else index
        feature: dict[str, Any] = {}
        for name, flat in self._flat.items():
            starts = self._starts[name]
            feature[name] = flat[starts[row] : starts[row + 1]]
        feature |= {name: int(values[row]) for name, values in self._scalars.items()}
        if index == GHOST and "labels" in feature:
            labels = feature["labels"]
            feature["labels"] = np.full_like(labels, IGNORED) if isinstance(labels, np.ndarray) else IGNORED
        return feature


def collate(
    features: Sequence[Mapping[str, Any]], *, pad_token_id: int, pad_to_multiple_of: int | None = None
) -> dict[str, torch.Tensor]:
    """Pads rows on the right to the longest of them.

    Args:
        features: rows of `EncodedRows`.
        pad_token_id: fills `input_ids`; the attention mask hides it, so that its value doesn't matter.
        pad_to_multiple_of: rounds the width up, for kernels that want whole tiles.

    Returns:
        int64 tensors: `input_ids`, `attention_mask` (1 for a token, 0 for padding) and `token_type_ids` where rows have
        them, (B, T); `labels` (B,), or (B, T) padded with -100 where every token has one.
    """
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    width = int(lengths.max())
    if pad_to_multiple_of is not None:
        width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
    batch = {"attention_mask": torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))}
    for name, fill in (("input_ids", pad_token_id), ("token_type_ids", 0), ("labels", IGNORED)):
        if name not in features[0]:
            continue
        values = [feature[name] for feature in features]
        batch[name] = torch.tensor(values) if isinstance(values[0], int) else _padded(values, width=width, fill=fill)
    return batch


def _padded(rows: Sequence[np.ndarray], *, width: int, fill: int) -> torch.Tensor:
    padded = np.full((len(rows), width), fill, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(padded)
