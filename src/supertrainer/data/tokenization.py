"""Texts -> token ids, held as flat Arrow lists rather than Python lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    pairs: Sequence[str] | None = None,
    with_words: bool = False,
) -> datasets.Dataset:
    """Encodes texts, or pairs of texts, with special tokens. Longer rows are cut, the longer text of a pair first.

    Args:
        with_words: adds `word_ids`, which sub-words make up a word; -1 for special tokens.

    Returns:
        A row a text: `input_ids` and, where the model takes them, `token_type_ids` (int32 lists), `length` in tokens,
        `truncated`.

    Raises:
        ConfigError: words are asked for, and the tokenizer is one written in Python.
    """
    if with_words:
        require_fast(tokenizer)
    table = EncodedTable(tokenizer, further=("word_ids",) if with_words else ())
    for start in range(0, len(texts), BATCH):
        batch = list(texts[start : start + BATCH])
        batch_pairs = None if pairs is None else list(pairs[start : start + BATCH])
        encoded = tokenizer(batch, batch_pairs, truncation="longest_first", max_length=max_length, padding=False)
        words = {"word_ids": [word_ids(encoding) for encoding in encoded.encodings]} if with_words else {}
        table.add(encoded, truncated=_truncated(encoded, batch, batch_pairs, tokenizer=tokenizer), **words)
    return table.dataset()


def encode_windows(
    texts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    overlap: int,
    with_words: bool = False,
) -> datasets.Dataset:
    """Encodes texts as windows of at most `max_length` tokens, each sharing `overlap` tokens with the one before.

    Returns:
        A row a window: as `encode_texts`, and `document`, the number of its text.

    Raises:
        ConfigError: the tokenizer is one written in Python.
    """
    require_fast(tokenizer)
    table = EncodedTable(tokenizer, further=("word_ids",) if with_words else ())
    documents: list[int] = []
    for start in range(0, len(texts), BATCH):
        encoded = tokenizer(
            list(texts[start : start + BATCH]),
            truncation=True,
            max_length=max_length,
            stride=overlap,
            return_overflowing_tokens=True,
            padding=False,
        )
        documents += [start + number for number in encoded.pop("overflow_to_sample_mapping")]
        words = {"word_ids": [word_ids(encoding) for encoding in encoded.encodings]} if with_words else {}
        table.add(encoded, truncated=[False] * len(encoded["input_ids"]), **words)
    return table.dataset().add_column("document", documents)


def require_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a tokenizer that doesn't say which characters a token stands for.

    Raises:
        ConfigError: it is one written in Python.
    """
    if not tokenizer.is_fast:
        raise ConfigError(
            f"{type(tokenizer).__name__} doesn't say which characters a token stands for.",
            why="only tokenizers with a tokenizer.json do; words, tags and windows need it.",
            fix="model.tokenizer=<a directory or Hub id with a tokenizer.json>.",
        )


def word_ids(encoding: Any) -> np.ndarray:
    """The word of every token of a row, -1 for special tokens, (T,) int32."""
    return np.asarray([-1 if word is None else word for word in encoding.word_ids], dtype=np.int32)


class EncodedTable:
    """Gathers encoded batches as flat arrays."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, further: Sequence[str] = ()) -> None:
        """
        Args:
            further: columns beside the tokenizer's, which have a value for every token too.
        """
        self._tokenizer = tokenizer
        self._own = [name for name in ("input_ids", "token_type_ids") if name in tokenizer.model_input_names]
        self._flat: dict[str, list[np.ndarray]] = {name: [] for name in (*self._own, *further)}
        self._lengths: list[int] = []
        self._truncated: list[bool] = []

    def add(self, encoded: BatchEncoding, *, truncated: Sequence[bool], **further: Sequence[np.ndarray]) -> None:
        """Adds a batch."""
        self._lengths += [len(ids) for ids in encoded["input_ids"]]
        self._truncated += truncated
        for name, values in {**{name: encoded[name] for name in self._own}, **further}.items():
            self._flat[name].append(np.concatenate([np.asarray(row, dtype=np.int32) for row in values]))

    def dataset(self) -> datasets.Dataset:
        """All rows."""
        import datasets
        import pyarrow as pa

        if self._tokenizer.is_fast:
            self._tokenizer.backend_tokenizer.no_truncation()  # else tokenizer.json would be saved with it
        offsets = pa.array(np.concatenate([[0], np.cumsum(self._lengths, dtype=np.int64)]), type=pa.int64())
        columns: dict[str, pa.Array] = {
            name: pa.LargeListArray.from_arrays(offsets, pa.array(np.concatenate(parts)))
            for name, parts in self._flat.items()
        }
        columns["length"] = pa.array(self._lengths, type=pa.int32())
        columns["truncated"] = pa.array(self._truncated, type=pa.bool_())
        return datasets.Dataset(pa.table(columns))


def _truncated(
    encoded: BatchEncoding, batch: list[str], pairs: list[str] | None, *, tokenizer: PreTrainedTokenizerBase
) -> list[bool]:
    """Whether each row of a batch was cut."""
    if encoded.encodings is not None:
        return [bool(encoding.overflowing) for encoding in encoded.encodings]
    whole = tokenizer(batch, pairs, truncation=False, padding=False, verbose=False)  # tokenizers written in Python
    return [len(cut) < len(ids) for cut, ids in zip(encoded["input_ids"], whole["input_ids"], strict=True)]
