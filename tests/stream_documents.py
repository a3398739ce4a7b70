"""Documents whose tokens are known."""

from __future__ import annotations


def words(number: int, count: int) -> str:
    """A document of one word, so often: its token ids are `number + 3` with the tokenizer of `tests/data/streams`."""
    return " ".join([f"w{number}"] * count)
