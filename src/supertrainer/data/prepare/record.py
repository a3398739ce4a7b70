"""A row as its file holds it, and what can be wrong with one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 5

Row = dict[str, Any]


class RowFault(ValueError):
    """A row can't be taken: `field` is the column or key at fault, `what` says why with the real value."""

    def __init__(self, field: str, what: str) -> None:
        self.field = field
        self.what = what
        super().__init__(f"{field}: {what}")


@dataclass(frozen=True)
class Raw:
    """One row of a file before it is converted.

    `values` is what the file holds (a dict, a list, a text), or the RowFault that kept it from being read. `row` is the
    line in a text file (1-based, the first of the row), the number of the item in a JSON list or a Parquet file.
    """

    values: Any
    file: str
    row: int
    split: str | None
    path: Path

    @property
    def place(self) -> str:
        """How messages name the row: `train.csv:17`."""
        return f"{self.file}:{self.row}"


@dataclass
class Notes:
    """What isn't a fault but belongs into the report: counts with the first places."""

    counts: Counter[str] = field(default_factory=Counter)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, *, place: str) -> None:
        """Counts one case."""
        self.counts[what] += 1
        shown = self.places.setdefault(what, [])
        if len(shown) < SHOWN:
            shown.append(place)


def shown(value: Any, *, length: int = 60) -> str:
    """A value as messages show it, cut to `length` characters."""
    text = ascii(value)
    return text if len(text) <= length else text[: length - 3] + "..."


def text_of(value: Any, field: str) -> str:
    """A value that has to be a text.

    Raises:
        RowFault: it is missing, no text, or holds half of a surrogate pair, which no file can hold.
    """
    if value is None:
        raise RowFault(field, "is missing")
    if not isinstance(value, str):
        raise RowFault(field, f"is no text but {shown(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise RowFault(field, f"holds half of a surrogate pair: {shown(value)}") from None
    return value
