"""Texts -> token ids, held as flat Arrow lists rather than Python lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from supertrainer.core.errors import ConfigError

if TYPE_CHECKING:
    import datasets
    from transformers import BatchEncoding, PreTrainedTokenizerBase

BATCH = 1_000
NO_LIMIT = 1_000_000  # tokenizers without a limit of their own say 1e30


def resolve_max_length(max_length: int | None, tokenizer: PreTrainedTokenizerBase) -> int:
    """The longest row in tokens: the config's `max_length`, else the tokenizer's own limit.

    Raises:
        ConfigError: the config asks for more than the tokenizer's limit, or neither says one.
    """
    own = tokenizer.model_max_length
    if max_length is None:
        if own > NO_LIMIT:
            raise ConfigError(
                "dataset.max_length is null, and the tokenizer has no limit of its own.",
                fix="dataset.max_length=512, say.",
            )
        return int(own)
    if max_length > own:
        raise ConfigError(
            f"dataset.max_length={max_length} is more than the {own} tokens that the tokenizer of this model allows.",
            why="the model has no positions for the tokens beyond.",
            fix=f"dataset.max_length={own} or less.",
        )
    return max_length


def encode_texts(
    texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, *, max_length: int, pairs: Sequence[str] | None = None
) -> datasets.Dataset:
    """Encodes texts, or pairs of texts, with special tokens. Longer rows are cut, the longer text of a pair first.

    Returns:
        A row a text: `input_ids` and, where the model takes them, `token_type_ids` (int32 lists), `length` in tokens,
        `truncated`.
    """
    import datasets
    import pyarrow as pa

    lists = [name for name in ("input_ids", "token_type_ids") if name in tokenizer.model_input_names]
    flat: dict[str, list[np.ndarray]] = {name: [] for name in lists}
    lengths: list[int] = []
    truncated: list[bool] = []
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        batch_pairs = None if pairs is None else list(pairs[start : start + BATCH])
        encoded = tokenizer(batch, batch_pairs, truncation="longest_first", max_length=max_length, padding=False)
        lengths += [len(ids) for ids in encoded["input_ids"]]
        truncated += _truncated(encoded, batch, batch_pairs, tokenizer=tokenizer)
        for name in lists:
            flat[name].append(np.concatenate([np.asarray(ids, dtype=np.int32) for ids in encoded[name]]))
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()  # else tokenizer.json would be saved with it
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), type=pa.int64())
    columns = {name: pa.LargeListArray.from_arrays(offsets, pa.array(np.concatenate(flat[name]))) for name in lists}
    columns |= {"length": pa.array(lengths, type=pa.int32()), "truncated": pa.array(truncated, type=pa.bool_())}
    return datasets.Dataset(pa.table(columns))


def _truncated(
    encoded: BatchEncoding, batch: list[str], pairs: list[str] | None, *, tokenizer: PreTrainedTokenizerBase
) -> list[bool]:
    """Whether each row of a batch was cut."""
    if encoded.encodings is not None:
        return [bool(encoding.overflowing) for encoding in encoded.encodings]
    whole = tokenizer(batch, pairs, truncation=False, padding=False, verbose=False)  # tokenizers written in Python
    return [len(cut) < len(ids) for cut, ids in zip(encoded["input_ids"], whole["input_ids"], strict=True)]
