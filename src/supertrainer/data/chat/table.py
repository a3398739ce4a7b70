"""Token rows as a `datasets.Dataset`, held as flat Arrow lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from supertrainer.data.chat.encoding import TokenRows

if TYPE_CHECKING:
    import pyarrow as pa


def to_table(rows: TokenRows) -> pa.Table:
    """`input_ids`, `labels` (int32 lists), `length`, `truncated`, and `row`, the number of its conversation; where rows
    have pictures `picture_tokens`, how many tokens are theirs.
    """
    import pyarrow as pa

    lengths = [len(ids) for ids in rows.ids]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), type=pa.int64())
    columns = {
        "input_ids": pa.LargeListArray.from_arrays(offsets, pa.array(_flat(rows.ids))),
        "labels": pa.LargeListArray.from_arrays(offsets, pa.array(_flat(rows.labels))),
        "length": pa.array(lengths, type=pa.int32()),
        "truncated": pa.array(rows.truncated, type=pa.bool_()),
        "row": pa.array(rows.numbers, type=pa.int32()),
    }
    if any(fixed is not None for fixed in rows.fixed):
        counts = [0 if fixed is None else int(fixed.sum()) for fixed in rows.fixed]
        columns["picture_tokens"] = pa.array(counts, type=pa.int32())
    return pa.table(columns)


def _flat(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype=np.int32), *parts])
