"""Files for people: YAML, and plain text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.locate import SourceFile
from supertrainer.data.source_schema import TextUnit
from supertrainer.data.tables import RawRows


def read_yaml(file: SourceFile, text: str) -> Iterator[tuple[str, Any]]:
    """The rows of a YAML file with their places: a list of rows, or an object one of whose keys lists them.

    Under a key, a row that is no object is the value of that key: `conversations: [[a, b], …]` has the rows
    `{conversations: [a, b]}`, ….

    Raises:
        DataError: the file is no YAML, or lists no rows.
    """
    import yaml

    try:
        value = yaml.load(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise DataError(f"{file.name} is no YAML: {' '.join(str(error).split())}.") from None
    key, rows = "", value
    if isinstance(value, dict):
        # The rows may stand beside facts about the file, which may be lists too: `categories: [food]`.
        lists = {name: found for name, found in value.items() if isinstance(found, list)}
        nested = [name for name, found in lists.items() if any(isinstance(row, dict | list) for row in found)]
        key = next(iter(nested or lists), "")
        rows = lists.get(key)
    if not isinstance(rows, list):
        raise DataError(
            f"{file.name} lists no rows.",
            fix="a list of rows, or an object with a list, such as conversations: [[…], …].",
        )
    for number, row in enumerate(rows, start=1):
        yield f"{file.name} row {number}", {str(key): row} if key and not isinstance(row, dict) else row


def read_texts(file: SourceFile, text: str, *, unit: TextUnit) -> RawRows:
    """The texts of a plain text file: one, one a paragraph (blank lines stand between), or one a line."""
    lines = text.split("\n")
    texts: list[str] = []
    places: list[str] = []
    if unit == "file":
        return RawRows({"text": [text]}, [file.name], ("text",))
    for number, line in enumerate(lines, start=1):
        if unit == "line" and line.strip():
            texts.append(line.rstrip("\r"))
            places.append(f"{file.name}:{number}")
    if unit == "paragraph":
        numbered = itertools.groupby(enumerate(lines, start=1), key=lambda item: bool(item[1].strip()))
        for filled, group in numbered:
            if filled:
                members = list(group)
                texts.append("\n".join(line.rstrip("\r") for _, line in members))
                places.append(f"{file.name}:{members[0][0]}")
    return RawRows({"text": texts}, places, ("text",))
