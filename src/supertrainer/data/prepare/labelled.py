"""Tables and JSON objects with a text and a label, several labels or a number."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.prepare.record import Raw, Row, RowFault, shown, text_of

SEPARATORS = ("|", ";", ",")
_DECIMAL_COMMA = re.compile(r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+\s*")
_TRUE = {"1", "1.0", "true", "yes"}
_FALSE = {"0", "0.0", "false", "no", ""}


def infer_task(values: Sequence[Any], *, label: str | None) -> tuple[str, str]:
    """The task of labelled texts by the first values of the label column, and why."""
    if label is None:
        return "text", "there is no column with labels"
    present = [value for value in values if value is not None and value != ""]
    if any(isinstance(value, list) for value in present):
        return "multi_label", f"{label!r} holds lists"
    numbers = [
        number for value in present if (number := _number_or_none(value, comma=_has_commas(present))) is not None
    ]
    if present and len(numbers) == len(present) and any(not number.is_integer() for number in numbers):
        return "regression", f"{label!r} holds numbers with decimals"
    return "sequence_classification", f"{label!r} holds one value a row"


def text_converter(columns: Mapping[str, str]) -> Callable[[Raw], Row]:
    """The text columns of a row."""
    kept = {ours: name for ours, name in columns.items() if ours in ("text", "text_pair")}

    def convert(raw: Raw) -> Row:
        values = object_of(raw)
        return {ours: text_of(values.get(name), name) for ours, name in kept.items()}

    return convert


def label_converter(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """One label as text: 7 and 7.0 are "7", true is "true"."""
    return lambda values: label_of(values.get(name), name)


def labels_converter(name: str, *, separator: str) -> Callable[[Mapping[str, Any]], Any]:
    """Several labels: a list, a JSON list in a text, or a text with separators. None at all is an empty list."""

    def convert(values: Mapping[str, Any]) -> list[str]:
        value = values.get(name)
        if value is None:
            raise RowFault(name, "is missing")
        if isinstance(value, str):
            value = _listed(value, name, separator)
        if not isinstance(value, list):
            raise RowFault(name, f"is no list of labels but {shown(value)}")
        return list(dict.fromkeys(label_of(item, name) for item in value))

    return convert


def columns_converter(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    """Several labels from a column each that holds 1 or 0, true or false."""

    def convert(values: Mapping[str, Any]) -> list[str]:
        found: list[str] = []
        for name in names:
            value = str(values.get(name, "")).strip().lower()
            if value not in _TRUE | _FALSE or values.get(name) is None:
                raise RowFault(name, f"is neither 1 nor 0 but {shown(values.get(name))}")
            found += [name] if value in _TRUE else []
        return found

    return convert


def number_converter(name: str, *, comma: bool) -> Callable[[Mapping[str, Any]], Any]:
    """A number, with a decimal comma where `comma`."""

    def convert(values: Mapping[str, Any]) -> float:
        value = values.get(name)
        number = _number_or_none(value, comma=comma)
        if number is None:
            raise RowFault(name, f"is no number but {shown(value)}")
        return number

    return convert


def choose_separator(values: Sequence[Any]) -> tuple[str, str]:
    """What divides the labels in a text, and why."""
    texts = [value for value in values if isinstance(value, str) and not value.lstrip().startswith("[")]
    for mark in SEPARATORS:
        if count := sum(mark in text for text in texts):
            return mark, f"labels are divided by {mark!r}, which stands in {count} of the first {len(texts)} rows"
    return SEPARATORS[0], "every row has its labels in a list, or one label"


def choose_comma(values: Sequence[Any], said: str | None) -> tuple[bool, str]:
    """Whether numbers have a decimal comma, and why."""
    if said is not None:
        return said == "comma", f"decimal {said}, as said"
    found = _has_commas(values)
    return found, f"decimal {'comma' if found else 'point'}, as the first rows have it"


def object_of(raw: Raw) -> Mapping[str, Any]:
    """The value of a raw row that has to be an object.

    Raises:
        RowFault: it is something else.
    """
    if not isinstance(raw.values, dict):
        raise RowFault("the row", f"is no object but {shown(raw.values)}")
    return raw.values


def label_of(value: Any, field: str) -> str:
    """A label's text.

    Raises:
        RowFault: it is missing, a list or a number that is not whole.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        return str(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        raise RowFault(field, "is missing")
    if not isinstance(value, str):
        raise RowFault(field, f"is no label but {shown(value)}")
    return text_of(value, field)


def require_labels(choice: Mapping[str, str], *, task: str) -> str:
    """The label column.

    Raises:
        DataError: there is none.
    """
    if "label" not in choice:
        raise DataError(f"--task {task} needs a column with labels.", fix="--columns label=NAME")
    return choice["label"]


def _listed(value: str, name: str, separator: str) -> Any:
    if value.lstrip().startswith("["):
        try:
            return json.loads(value)
        except json.JSONDecodeError:
            raise RowFault(name, f"is no JSON list: {shown(value)}") from None
    return [part.strip() for part in value.split(separator) if part.strip()]


def _has_commas(values: Sequence[Any]) -> bool:
    texts = [value for value in values if isinstance(value, str)]
    return any(_DECIMAL_COMMA.fullmatch(text) for text in texts) and not any(
        "." in text and "," not in text for text in texts
    )


def _number_or_none(value: Any, *, comma: bool) -> float | None:
    if isinstance(value, str):
        if comma:
            value = value.replace(".", "").replace(",", ".")
        try:
            value = float(value) if "_" not in value else None
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None
