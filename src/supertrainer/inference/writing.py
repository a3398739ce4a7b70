"""Rows with predictions into a file, which has its name only when all of them are in it."""

from __future__ import annotations

import csv
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import DataError
from supertrainer.core.files import fsync_path
from supertrainer.inference.reading import DELIMITERS, Row, format_of

if TYPE_CHECKING:
    import pyarrow as pa


class Writer(ABC):
    """Takes rows with predictions, in one format."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Appends rows; all have the columns of the first."""

    @abstractmethod
    def close(self) -> None:
        """After the last row."""


class _TableWriter(Writer):
    def __init__(self, path: Path, *, delimiter: str) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, delimiter=delimiter, lineterminator="\n")
        self._header: list[str] | None = None

    def write(self, rows: Sequence[Row]) -> None:
        if self._header is None:
            self._header = list(rows[0])
            self._writer.writerow(self._header)
        for row in rows:
            strange = row.keys() - set(self._header)
            if strange:
                raise DataError(
                    f"a row has the column {min(strange)!r}, which the first {len(self._header)} columns don't have.",
                    fix="write JSON lines: inferencer.output=….jsonl.",
                )
            self._writer.writerow([_cell(row.get(name)) for name in self._header])

    def close(self) -> None:
        self._file.close()


class _JsonWriter(Writer):
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        self._file.close()


class _ParquetWriter(Writer):
    def __init__(self, path: Path, *, schema: pa.Schema | None) -> None:
        self._path = path
        self._schema = schema
        self._writer: Any = None

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pa.Table.from_pylist(list(rows), schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise DataError(
                f"the rows don't fit one table: {error}.", fix="write JSON lines: inferencer.output=….jsonl."
            ) from None
        if self._writer is None:
            self._schema = table.schema
            self._writer = pq.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writing(path: Path, *, schema: pa.Schema | None) -> Iterator[Writer]:
    """A writer to a file beside `path`, which is renamed into place at the end; an error leaves what was there before.

    Args:
        path: its ending says the format.
        schema: the types of a Parquet file's columns, predictions included; None to take them from the first rows.
    """
    found = format_of(path, key="inferencer.output")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.incoming")
    writer: Writer
    match found:
        case "csv" | "tsv":
            writer = _TableWriter(aside, delimiter=DELIMITERS[found])
        case "jsonl":
            writer = _JsonWriter(aside)
        case "parquet":
            writer = _ParquetWriter(aside, schema=schema)
    try:
        try:
            yield writer
        finally:
            writer.close()
        fsync_path(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    fsync_path(path.parent)


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else value
