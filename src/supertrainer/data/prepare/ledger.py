"""What is remembered of every row while the rows themselves wait on disk: some 200 bytes each at the peak.

Repeats are found by 128-bit hashes: two different rows with the same one are less likely than a disk error.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from supertrainer.data.prepare.record import Raw, Row
from supertrainer.data.prepare.row_rules import lengths
from supertrainer.data.prepare.shapes import Shape, labels
from supertrainer.data.schema import SPLITS

Numbers = npt.NDArray[np.uint64]
HASH_BYTES = 16
NONE = -1


@dataclass
class Ledger:
    """Columns of numbers, a place a row, in the order of reading.

    `contents` hashes a whole row, `units` the columns whose equality keeps rows on one side of a split, `targets`
    labels or answers. `strata` numbers the sets of labels (`stratum_labels`), `groups` the values of `--group`.
    """

    shape: Shape
    normalised: bool
    seed: int
    files: list[str] = field(default_factory=list)
    stratum_labels: list[tuple[str, ...]] = field(default_factory=list)
    _file: array[int] = field(default_factory=lambda: array("I"))
    _row: array[int] = field(default_factory=lambda: array("Q"))
    _split: array[int] = field(default_factory=lambda: array("b"))
    _stratum: array[int] = field(default_factory=lambda: array("I"))
    _characters: array[int] = field(default_factory=lambda: array("I"))
    _words: array[int] = field(default_factory=lambda: array("I"))
    _content: bytearray = field(default_factory=bytearray)
    _unit: bytearray = field(default_factory=bytearray)
    _target: bytearray = field(default_factory=bytearray)
    _group: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self._file_ids: dict[str, int] = {}
        self._stratum_ids: dict[tuple[str, ...], int] = {}

    def __len__(self) -> int:
        return len(self._file)

    def add(self, raw: Raw, row: Row, *, group: Any = None) -> None:
        """Remembers a row. `group` None: there are no groups."""
        self._file.append(_id(raw.file, self._file_ids, self.files))
        self._row.append(raw.row)
        self._split.append(SPLITS.index(raw.split) if raw.split else 0)
        self._stratum.append(_id(tuple(sorted(labels(row, self.shape))), self._stratum_ids, self.stratum_labels))
        characters, words = lengths(row, self.shape)
        self._characters.append(characters)
        self._words.append(words)
        columns = self.shape.columns
        self._content += self._hash([row[name] for name in columns])
        self._unit += self._hash([_spaced(row[name]) for name in self.shape.unit])
        self._target += self._hash([row[name] for name in columns if name not in self.shape.unit])
        if group is not None:
            self._group += _digest(json.dumps(group, sort_keys=True, default=str))

    def place(self, index: int) -> str:
        """Where a row stands: `train.csv:17`."""
        return f"{self.files[self._file[index]]}:{self._row[index]}"

    def source(self, index: int) -> tuple[str, int]:
        """The file and the row of a row."""
        return self.files[self._file[index]], self._row[index]

    def splits(self) -> npt.NDArray[np.int8]:
        """The split that the source says, as a number of SPLITS; train where it says none."""
        return np.array(self._split, dtype=np.int8)

    def strata(self) -> npt.NDArray[np.int64]:
        """The number of every row's set of labels."""
        return np.array(self._stratum, dtype=np.int64)

    def lengths(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Characters and words of every row."""
        return np.array(self._characters, dtype=np.int64), np.array(self._words, dtype=np.int64)

    def contents(self) -> npt.NDArray[np.int64]:
        """A number a row, the same for equal rows: that of the first of them."""
        return first_equal(_columns(self._content))

    def units(self) -> npt.NDArray[np.int64]:
        """A number a row, the same for rows that belong on one side of a split."""
        return first_equal(_columns(self._unit))

    def targets(self) -> npt.NDArray[np.int64]:
        """A number a row, the same for equal labels or answers."""
        return first_equal(_columns(self._target))

    def groups(self) -> npt.NDArray[np.int64] | None:
        """A number a row, the same within a group; None where there are none."""
        return first_equal(_columns(self._group)) if self._group else None

    def draws(self, *, by_group: bool) -> Numbers:
        """A random number a row that follows from the seed and the row's unit (its group) alone."""
        hashes = _columns(self._group if by_group else self._unit)
        mixed = hashes[:, 0] ^ np.uint64(int.from_bytes(_digest(f"seed {self.seed}")[:8], "little"))
        # splitmix64: neighbouring numbers come out far apart. Source: Steele, Lea and Flood 2014.
        with np.errstate(over="ignore"):
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))

    def _hash(self, values: Sequence[Any]) -> bytes:
        return _digest(json.dumps(_normal(values) if self.normalised else values, ensure_ascii=False, sort_keys=True))


def normalised(text: str) -> str:
    """A text without letter case, punctuation, white space and compatibility forms, for comparison alone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(c if c.isalnum() or unicodedata.category(c)[0] in "MS" else " " for c in folded)
    return " ".join(kept.split()) or text


def first_equal(hashes: Numbers) -> npt.NDArray[np.int64]:
    """For every row the index of the first row with the same hash.

    Args:
        hashes: (N, 2) of 64 bits.
    """
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))  # stable: equal rows stay in their order
    ordered = hashes[order]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    result = np.empty(len(order), dtype=np.int64)
    result[order] = order[starts][np.cumsum(starts) - 1] if len(order) else order
    return result


def _columns(content: bytearray) -> Numbers:
    return np.frombuffer(bytes(content), dtype="<u8").reshape(-1, 2).astype(np.uint64, copy=False)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=HASH_BYTES).digest()


def _spaced(value: Any) -> Any:
    """A text without differences of white space: the rows of a dataset are compared so too."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _normal(value: Any) -> Any:
    match value:
        case str():
            return normalised(value)
        case list():
            return [_normal(item) for item in value]
        case dict():
            return {key: _normal(item) for key, item in value.items()}
    return value


def _id(value: Any, ids: dict[Any, int], values: list[Any]) -> int:
    found = ids.setdefault(value, len(values))
    if found == len(values):
        values.append(value)
    return found
