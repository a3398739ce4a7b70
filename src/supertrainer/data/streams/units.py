"""What is opened at once: a row group, a record batch, a span of a text file. And a document as it is found there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

OddKind = Literal["null", "empty", "broken", "huge"]
ODD_KINDS: tuple[OddKind, ...] = ("null", "empty", "broken", "huge")


@dataclass(frozen=True)
class Odd:
    """Why something is no document that can be trained on."""

    kind: OddKind
    why: str


@dataclass(frozen=True)
class Unit:
    """A part of a file that is opened at once.

    Attributes:
        part: what the file's own reader knows it by.
        documents: how many it holds; None where that is known only when it is open.
        size: bytes of its documents, about.
    """

    part: tuple[int, int]
    documents: int | None
    size: int


class OpenUnit(Protocol):
    """The documents of a unit, by their index from 0."""

    numbers: np.ndarray
    """A number for each document that is its own in its file, whatever the units are."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> str | bytes | np.ndarray | Odd:
        """A text, its bytes in UTF-8, or token ids."""
        ...

    def place(self, index: int) -> str:
        """Where a document stands, for messages: `name:line` or `name row 7`."""
        ...


class UnitFile(Protocol):
    """One file of documents."""

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        """Its units in their order, each of at most `block_bytes` where the format lets it be cut.

        Args:
            exact: whether documents are to be counted, also where that takes reading the file.
        """
        ...

    def numbers(self, unit: Unit) -> np.ndarray:
        """`OpenUnit.numbers` of a unit, without reading its documents where they are known so."""
        ...

    def open(self, unit: Unit) -> OpenUnit:
        """The documents of a unit."""
        ...


def runs(sizes: np.ndarray, *, block_bytes: int) -> list[tuple[int, int]]:
    """Documents of these sizes as runs [begin, end) of at most `block_bytes` each; a larger one is one by itself."""
    ends = np.cumsum(sizes, dtype=np.int64)
    found, begin = [], 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + block_bytes, side="right")))
        found.append((begin, end))
        begin = end
    return found
