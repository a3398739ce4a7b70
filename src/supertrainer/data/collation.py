"""Token ids -> padded tensors, fast: rows are views into flat arrays, and a batch is filled in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from supertrainer.data.batching import GHOST

if TYPE_CHECKING:
    import datasets

IGNORED = -100  # a label that no loss counts; of labels that are fractions, NaN
MODEL_INPUTS = ("input_ids", "token_type_ids", "labels")


class EncodedRows:
    """Rows of `encode` as a map-style torch dataset, held as one flat array a column.

    Index `GHOST` is a copy of the shortest row with labels that no loss counts.

    Attributes:
        lengths: tokens of each row, (N,).
        documents: where rows are windows, the first row of each text and the number of rows, (D + 1,); else None.
        pooling: how the logits of a text's windows become one prediction.
    """

    def __init__(self, encoded: datasets.Dataset, *, pooling: Literal["mean", "max"] = "mean") -> None:
        import pyarrow as pa

        table = encoded.with_format("arrow")[:]
        self._flat: dict[str, np.ndarray] = {}
        self._starts: dict[str, np.ndarray] = {}
        self._scalars: dict[str, np.ndarray] = {}
        for name in (name for name in (*MODEL_INPUTS, "word_ids") if name in table.column_names):
            column = table.column(name).combine_chunks()
            if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
                self._scalars[name] = column.to_numpy()
                continue
            self._flat[name] = column.flatten().to_numpy()
            self._starts[name] = np.concatenate([[0], np.cumsum(column.value_lengths().to_numpy())])
        self.lengths = np.diff(self._starts["input_ids"])
        self.pooling = pooling
        self.documents: np.ndarray | None = None
        if "document" in table.column_names:
            numbers = table.column("document").to_numpy()
            self.documents = np.concatenate([np.flatnonzero(np.diff(numbers, prepend=-1)), [len(numbers)]])
        self._shortest = int(self.lengths.argmin())

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def unit_lengths(self) -> np.ndarray:
        """Tokens of everything that gets a prediction: of each row, or of all windows of each text."""
        return self.lengths if self.documents is None else np.add.reduceat(self.lengths, self.documents[:-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row: `input_ids` and `token_type_ids` (T,) as views, `labels` a number or (T,) or (C,)."""
        row = self._shortest if index == GHOST else index
        feature: dict[str, Any] = {name: self._slice(name, row) for name in self._flat if name != "word_ids"}
        feature |= {name: values[row].item() for name, values in self._scalars.items()}
        if index == GHOST and "labels" in feature:
            feature["labels"] = _no_label(feature["labels"])
        return feature

    def collate(
        self, features: Sequence[Mapping[str, Any]], *, pad_token_id: int, pad_to_multiple_of: int | None = None
    ) -> dict[str, torch.Tensor]:
        """A batch of rows: see the function of this name. Rows that hold more than tokens have their own."""
        return collate(features, pad_token_id=pad_token_id, pad_to_multiple_of=pad_to_multiple_of)

    def word_ids(self, index: int) -> np.ndarray:
        """The word of every token of a row, -1 for special tokens, (T,)."""
        return self._slice("word_ids", index)

    def token_counts(self) -> torch.Tensor:
        """How often each token stands in a word of the rows, up to the highest there, (V,)."""
        ids = self._flat["input_ids"][self._flat["word_ids"] >= 0]
        return torch.from_numpy(np.bincount(ids))

    def references(self, numbers: Sequence[int]) -> Any:
        """What was to be predicted for these rows, or texts of several windows: what a metric takes.

        Returns:
            Labels (B,), or (B, C) where every class has one; of tokens a list with the labels of each row, (L,).
        """
        rows = numbers if self.documents is None else self.documents[list(numbers)].tolist()
        if "labels" in self._scalars:
            return torch.from_numpy(self._scalars["labels"][list(rows)])
        labels = [self._slice("labels", row) for row in rows]
        if labels[0].dtype.kind == "f":
            return torch.from_numpy(np.stack(labels))
        return [torch.from_numpy(row[row != IGNORED].astype(np.int64)) for row in labels]

    def _slice(self, name: str, row: int) -> np.ndarray:
        starts = self._starts[name]
        return self._flat[name][starts[row] : starts[row + 1]]


def _no_label(labels: Any) -> Any:
    """Labels of the same shape and type that no loss counts."""
    if isinstance(labels, np.ndarray):
        return np.full_like(labels, np.nan if labels.dtype.kind == "f" else IGNORED)
    return float("nan") if isinstance(labels, float) else IGNORED


def collate(
    features: Sequence[Mapping[str, Any]], *, pad_token_id: int, pad_to_multiple_of: int | None = None
) -> dict[str, torch.Tensor]:
    """Pads rows on the right to the longest of them.

    Args:
        features: rows of `EncodedRows`, or packs of several texts, which have `position_ids`.
        pad_token_id: fills `input_ids`; its value doesn't matter, since nothing that counts sees it.
        pad_to_multiple_of: rounds the width up, for kernels that want whole tiles.

    Returns:
        int64 tensors: `input_ids`, `attention_mask` (1 for a token, 0 for padding) and `token_type_ids` where rows have
        them, (B, T); `labels` (B,), or (B, T) padded with -100 where every token has one; fp32 `labels` (B,), or (B, C)
        where every class has one. Packs have `position_ids` in place of a mask, in which padding is a text of its own:
        a model that is given a mask looks at nothing else to tell texts apart.
    """
    lengths = np.array([len(feature["input_ids"]) for feature in features])
    width = int(lengths.max())
    if pad_to_multiple_of is not None:
        width = -(-width // pad_to_multiple_of) * pad_to_multiple_of
    if "position_ids" in features[0]:
        batch = {"position_ids": _positions([feature["position_ids"] for feature in features], width=width)}
    else:
        batch = {"attention_mask": torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))}
    for name, fill in (("input_ids", pad_token_id), ("token_type_ids", 0), ("labels", IGNORED)):
        if name in features[0]:
            batch[name] = _tensor([feature[name] for feature in features], width=width, fill=fill)
    return batch


def _tensor(values: Sequence[Any], *, width: int, fill: int) -> torch.Tensor:
    first = values[0]
    if not isinstance(first, np.ndarray):
        return torch.tensor(values, dtype=torch.float32 if isinstance(first, float) else torch.int64)
    if first.dtype.kind == "f":
        return torch.from_numpy(np.stack(values).astype(np.float32))
    return _padded(values, width=width, fill=fill)


def _positions(rows: Sequence[np.ndarray], *, width: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([np.concatenate([row, np.arange(width - len(row))]) for row in rows]))


def _padded(rows: Sequence[np.ndarray], *, width: int, fill: int) -> torch.Tensor:
    padded = np.full((len(rows), width), fill, dtype=np.int64)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(padded)
