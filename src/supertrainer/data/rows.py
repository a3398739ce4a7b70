"""The rows of one split under the names that we give columns, before they become a `datasets.Dataset`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal

from supertrainer.core.errors import DataError
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.tables import RawRows
from supertrainer.data.values import UNREADABLE, as_label, as_labels, as_number, as_tags, as_text, as_words

_KINDS = {
    "text": "text",
    "words": "list of words",
    "label": "label",
    "labels": "list of labels",
    "number": "number",
    "tags": "list of tags",
}


@dataclass(frozen=True)
class Column:
    """A declared column: `key` is our name for it, `name` the file's, `setting` the config key that says so.

    `separator` stands between the labels of a text cell.
    """

    key: str
    name: str
    kind: Literal["text", "words", "label", "labels", "number", "tags"]
    setting: str
    required: bool = True
    separator: str = ","


@dataclass
class Rows:
    """Values by our column names (None: missing) and the place of each row, such as `train.csv:17`.

    A value is a text, a list of words, a label, a list of labels or tags, or a number, as the column's kind says.
    """

    columns: dict[str, list[Any]]
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

    def label(self, index: int) -> Any:
        """The label of a row, or its labels; None in rows that have none."""
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
        values[column.key] = [_converted(value, column, names) for value in found]
    faulty: set[int] = set()
    for column in present:
        kind = Kind(
            f"rows with no {_KINDS[column.kind]} in the column {column.name!r}",
            fix=f"mend them, or set {column.setting}.",
        )
        for index, value in enumerate(values[column.key]):
            if value is UNREADABLE:
                faulty.add(index)
                findings.add(
                    kind, where=where, place=f"{raw.places[index]} ({_shown(raw.columns[column.name][index])})"
                )
    named = (c.name for c in present if c.kind in ("label", "labels", "tags"))
    names = next((raw.class_names[name] for name in named if name in raw.class_names), None)
    return Rows(values, raw.places, names).without(faulty)


def _converted(value: Any, column: Column, names: Sequence[str] | None) -> Any:
    match column.kind:
        case "text":
            return as_text(value)
        case "words":
            return as_words(value)
        case "label":
            return as_label(value, names)
        case "labels":
            return as_labels(value, names, separator=column.separator)
        case "tags":
            return as_tags(value, names)
        case "number":
            return as_number(value)


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
