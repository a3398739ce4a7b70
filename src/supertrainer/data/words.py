"""Words with tags -> sub-words with labels: a word's label stands on its first sub-word, the others carry none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.data.collation import IGNORED
from supertrainer.data.tokenization import BATCH, EncodedTable, require_fast

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase


def encode_words(
    rows: Sequence[Sequence[str]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    tags: Sequence[Sequence[int]] | None = None,
) -> datasets.Dataset:
    """Encodes rows of words, written with one space between them. Words beyond `max_length` tokens are cut off.

    Every tokenizer that knows the characters of its tokens will do: none has to be told that the text is split.

    Args:
        tags: the id of every word's tag; None labels each first sub-word 0.

    Returns:
        A row a text: `input_ids`, `token_type_ids` where the model takes them, `labels` (int32 lists: the tag's id on
        the first sub-word of a word, -100 elsewhere), `length`, `truncated`, and `words`, the places of the words
        that have a label, in their order.

    Raises:
        ConfigError: the tokenizer doesn't know the characters of its tokens.
    """
    require_fast(tokenizer)
    table, places = EncodedTable(tokenizer, further=("labels",)), []
    for start in range(0, len(rows), BATCH):
        batch = [list(words) for words in rows[start : start + BATCH]]
        encoded = tokenizer([" ".join(words) for words in batch], truncation=True, max_length=max_length, padding=False)
        labels = []
        for number, (words, encoding) in enumerate(zip(batch, encoded.encodings, strict=True)):
            first = first_subwords(words, encoding)
            places.append(np.unique(first[first >= 0]).tolist())
            given = np.zeros(len(words), dtype=np.int32) if tags is None else np.asarray(tags[start + number], np.int32)
            labels.append(np.where(first >= 0, given[first], IGNORED))
        table.add(encoded, truncated=[bool(e.overflowing) for e in encoded.encodings], labels=labels)
    return table.dataset().add_column("words", places)


def first_subwords(words: Sequence[str], encoding: Any) -> np.ndarray:
    """The place of the word of which a token is the first sub-word; -1 for other tokens, (T,).

    A token belongs to the word that its last character is in: a space before a word may be a part of its token.
    """
    ends = np.cumsum([len(word) + 1 for word in words]) - 1  # after each word's last character
    starts = ends - [len(word) for word in words]
    spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    last = spans[:, 1] - 1
    word = np.minimum(np.searchsorted(ends, last, side="right"), len(words) - 1)
    inside = (spans[:, 1] > spans[:, 0]) & (last >= starts[word]) & (np.asarray(encoding.special_tokens_mask) == 0)
    found = np.where(inside, word, -1)
    seen = np.maximum.accumulate(np.concatenate([[-1], found]))[:-1]
    return np.where(found > seen, found, -1)


def cut_words(encoded: datasets.Dataset, rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """How many words of how many rows have no label: they lie beyond the longest row, or the tokenizer drops them."""
    lost = [len(words) - len(kept) for words, kept in zip(rows, encoded["words"], strict=True)]
    return sum(lost), sum(count > 0 for count in lost)
