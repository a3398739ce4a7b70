"""The rows of one split under the names that we give columns, before they become a `datasets.Dataset`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from supertrainer.core.errors import DataError
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.tables import RawRows

UNREADABLE = object()


@dataclass(frozen=True)
class Column:
    """A declared column: `key` is our name for it, `name` the file's, `setting` the config key that says so."""

    key: str
    name: str
    kind: Literal["text", "label"]
    setting: str
    required: bool = True


@dataclass
class Rows:
    """Values by our column names (None: missing) and the place of each row, such as `train.csv:17`."""

    columns: dict[str, list[str | None]]
    places: list[str]
    class_names: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def take(self, indices: Iterable[int]) -> Rows:
        """The rows of these indices, in their order."""
        kept = list(indices)
        columns = {key: [values[i] for i in kept] for key, values in self.columns.items()}
        return Rows(columns, [self.places[i] for i in kept], self.class_names)

    def without(self, indices: Set[int]) -> Rows:
        """The rows but for these indices."""
        return self.take(i for i in range(len(self)) if i not in indices) if indices else self

    def label(self, index: int) -> str | None:
        """The label of a row; None in rows that have none."""
        return self.columns["label"][index] if "label" in self.columns else None

    def place(self, index: int) -> str:
        """Where a row stands, with its label."""
        label = self.label(index)
        return self.places[index] if label is None else f"{self.places[index]} ({label!r})"


def select(raw: RawRows, columns: Sequence[Column], *, where: str, findings: Findings) -> Rows:
    """Takes the declared columns out of what a file holds, as text.

    Rows with a value that is no text (or no label) go to `findings`, named after `where`, and are left out.

    Raises:
        DataError: a required column isn't there; names those there are and the nearest.
    """
    present = _present(raw, columns, where=where)
    values: dict[str, list[Any]] = {}
    for column in present:
        names = raw.class_names.get(column.name)
        found = raw.columns[column.name]
        values[column.key] = (
            [as_text(v) for v in found] if column.kind == "text" else [as_label(v, names) for v in found]
        )
    faulty: set[int] = set()
    for column in present:
        kind = Kind(
            f"rows with no {column.kind} in the column {column.name!r}", fix=f"mend them, or set {column.setting}."
        )
        for index, value in enumerate(values[column.key]):
            if value is UNREADABLE:
                faulty.add(index)
                findings.add(
                    kind, where=where, place=f"{raw.places[index]} ({_shown(raw.columns[column.name][index])})"
                )
    names = next((raw.class_names[c.name] for c in present if c.kind == "label" and c.name in raw.class_names), None)
    return Rows(values, raw.places, names).without(faulty)


def as_text(value: Any) -> Any:
    """A text as it is, None where it is missing (null, NaN), UNREADABLE for a number, a list or broken Unicode."""
    if isinstance(value, str):
        return value if value.isascii() or _is_unicode(value) else UNREADABLE
    return None if _is_missing(value) else UNREADABLE


def as_label(value: Any, names: Sequence[str] | None) -> Any:
    """A label's text: `7` and `7.0` are "7", true is "true"; None where it is missing, UNREADABLE for 0.5 or a list.

    With `names` (of a `datasets.ClassLabel`) a number is the id of a name, and -1 stands for none.
    """
    if _is_missing(value):
        return None
    if isinstance(value, str):
        return None if not value.strip() else as_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        return UNREADABLE
    if names is None:
        return str(value)
    return None if value == -1 else names[value] if 0 <= value < len(names) else UNREADABLE


def _present(raw: RawRows, columns: Sequence[Column], *, where: str) -> list[Column]:
    findings = Findings()
    for column in columns:
        if column.required and column.name not in raw.available:
            there = ", ".join(raw.available) or "none"
            findings.add_problem(
                f"{where} has no column {column.name!r} ({column.setting}). It has: {there}.",
                fix=_column_fix(column, raw),
            )
    findings.raise_if_any()
    return [column for column in columns if column.name in raw.columns]


def _column_fix(column: Column, raw: RawRows) -> str:
    only = raw.available[0] if len(raw.available) == 1 else ""
    for delimiter, name in ((";", ";"), ("\t", r"\t"), ("|", "|")):
        if delimiter in only:
            return f'dataset.csv.delimiter="{name}": the header seems to be divided by it.'
    lower = {name.lower().strip(): name for name in raw.available}
    near = difflib.get_close_matches(column.name.lower(), lower, n=1, cutoff=0.4)
    return f"{column.setting}={lower[near[0]] if near else '<one of these>'}."


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell and nothing can write
        return False
    return True


def _shown(value: Any) -> str:
    shown = ascii(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:37] + '...'}"


def concatenated(parts: Sequence[Rows]) -> Rows:
    """The rows of several files as one split's.

    Raises:
        DataError: the files name their classes differently, so that their ids don't mean the same.
    """
    if len(parts) == 1:
        return parts[0]
    names = {part.class_names for part in parts}
    if len(names) > 1:
        raise DataError(f"the files of one split name their classes differently: {sorted(map(str, names))}.")
    columns = {key: [value for part in parts for value in part.columns[key]] for key in parts[0].columns}
    return Rows(columns, [place for part in parts for place in part.places], parts[0].class_names)
