"""Writes the splits as JSON lines or Parquet, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from supertrainer.core.errors import DataError
from supertrainer.data.prepare.options import OutputFormat
from supertrainer.data.prepare.record import Row, shown
from supertrainer.data.prepare.shapes import Shape

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1000
_MESSAGE_KEYS = {"role", "content"}


class Writer(Protocol):
    """Takes the rows of one file."""

    def write(self, row: Row) -> None:
        """Adds a row."""


def json_line(value: Any) -> str:
    """A value as a line of JSON in UTF-8."""
    return json.dumps(value, ensure_ascii=False) + "\n"


@contextmanager
def open_writers(
    folder: Path, splits: tuple[str, ...], *, shape: Shape, format: OutputFormat
) -> Iterator[Mapping[str, Writer]]:
    """A writer a split, of `folder/SPLIT.jsonl` or `folder/SPLIT.parquet`."""
    with ExitStack() as stack:
        make = _jsonl if format == "jsonl" else _parquet
        yield {split: stack.enter_context(make(folder / f"{split}.{format}", shape)) for split in splits}


class _Lines:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, row: Row) -> None:
        self._file.write(json_line(row))


@contextmanager
def _jsonl(path: Path, shape: Shape) -> Iterator[Writer]:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        yield _Lines(file)


class _Batches:
    def __init__(self, writer: Any, schema: pa.Schema, shape: Shape) -> None:
        self._writer, self._schema, self._shape = writer, schema, shape
        self._rows: list[Row] = []

    def write(self, row: Row) -> None:
        self._rows.append(_flat(row, self._shape))
        if len(self._rows) == BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


@contextmanager
def _parquet(path: Path, shape: Shape) -> Iterator[Writer]:
    import pyarrow.parquet as pq

    schema = _schema(shape)
    with pq.ParquetWriter(path, schema) as writer:
        batches = _Batches(writer, schema, shape)
        yield batches
        batches.flush()


def _schema(shape: Shape) -> pa.Schema:
    import pyarrow as pa

    parts = pa.list_(pa.struct([("type", pa.string()), ("text", pa.string())]))
    content = parts if "images" in shape.columns else pa.string()
    messages = pa.list_(pa.struct([("role", pa.string()), ("content", content)]))
    types = {
        "text": pa.string(),
        "label": pa.string(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "messages": messages,
        **dict.fromkeys(("labels", "tokens", "tags", "images"), pa.list_(pa.string())),
    }
    columns = [(name, types[kind]) for name, kind in shape.columns.items()]
    return pa.schema([*columns, *((name, pa.string()) for name in shape.extra)])


def _flat(row: Row, shape: Shape) -> Row:
    """A row as the columns' types take it: kept columns that aren't text are written as JSON."""
    flat = dict(row)
    for name in shape.extra:
        value = row.get(name)
        flat[name] = value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    for name, kind in shape.columns.items():
        for message in row[name] if kind == "messages" else ():
            if more := set(message) - _MESSAGE_KEYS:
                raise DataError(
                    f"{name}: a message has {', '.join(sorted(more))} besides role and content: {shown(message)}.",
                    why="a Parquet column has one type for all rows.",
                    fix="--format jsonl",
                )
            if not isinstance(message["content"], str) and "images" not in shape.columns:
                raise DataError(f"{name}: a message holds parts, not a text: {shown(message)}.", fix="--format jsonl")
    return flat
