"""The rows of a file, a chunk at a time. Every row and every cell is kept as it stands."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from supertrainer.core.errors import DataError
from supertrainer.core.files import cells_of_any_size

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
Format = Literal["csv", "tsv", "jsonl", "parquet"]
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
DELIMITERS = {"csv": ",", "tsv": "\t"}


def format_of(path: Path, *, key: str) -> Format:
    """The format that a file's ending says.

    Raises:
        DataError: none that is known.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise DataError(
            f"{key}={path}: what the file holds can't be told from its ending.",
            fix=f"one of {' '.join(FORMATS)}.",
        )
    return found


class Rows:
    """The rows of a file, read anew by every iteration, with the place of each (`reviews.csv:17`)."""

    def __init__(self, path: Path, *, encoding: str, chunk_rows: int) -> None:
        self.path = path
        self.format = format_of(path, key="inferencer.input")
        self._encoding = encoding
        self._chunk_rows = chunk_rows

    def __iter__(self) -> Iterator[list[tuple[str, Row]]]:
        """Chunks of (place, row).

        Raises:
            DataError: the file isn't what its ending says.
        """
        chunk: list[tuple[str, Row]] = []
        for item in self._rows():
            chunk.append(item)
            if len(chunk) == self._chunk_rows:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def schema(self) -> pa.Schema | None:
        """The types of a Parquet file's columns; None for text files."""
        if self.format != "parquet":
            return None
        import pyarrow.parquet as pq

        return pq.read_schema(self.path)

    def _rows(self) -> Iterator[tuple[str, Row]]:
        match self.format:
            case "csv" | "tsv":
                return self._table_rows()
            case "jsonl":
                return self._json_rows()
            case "parquet":
                return self._parquet_rows()

    def _table_rows(self) -> Iterator[tuple[str, Row]]:
        with self._text() as file, cells_of_any_size():
            reader = csv.reader(file, delimiter=DELIMITERS[self.format], strict=True)
            header: list[str] | None = None
            line = 1
            try:
                for cells in reader:
                    place, line = f"{self.path.name}:{line}", reader.line_num + 1
                    if not cells:
                        continue
                    if header is None:
                        header = self._checked_header(cells)
                    elif len(cells) != len(header):
                        raise DataError(
                            f"{place} has {len(cells)} cells, and there are {len(header)} columns.",
                            why="a delimiter or a quote inside a text that isn't quoted shifts the cells.",
                            fix="quote such cells.",
                        )
                    else:
                        yield place, dict(zip(header, cells, strict=True))
            except csv.Error as error:
                raise DataError(
                    f"{self.path.name}:{line}: {error}.", fix='a quoted cell holds quotes doubled: "".'
                ) from None

    def _checked_header(self, names: list[str]) -> list[str]:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"{self.path.name}:1: the header names the column {twice[0]!r} twice.", fix="rename one.")
        return names

    def _json_rows(self) -> Iterator[tuple[str, Row]]:
        with self._text() as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{self.path.name}:{number}: no JSON: {error.msg}, column {error.colno}.") from None
                if not isinstance(row, dict):
                    raise DataError(f"{self.path.name}:{number} is no JSON object.", fix='{"column": value, …} a line.')
                if "\\ud" in line.lower() and not _is_unicode(row):
                    raise DataError(
                        f"{self.path.name}:{number} holds half of a surrogate pair.",
                        why="a text was cut inside of a character, and nothing can write what is left of it.",
                        fix="mend the text.",
                    )
                yield f"{self.path.name}:{number}", row

    def _parquet_rows(self) -> Iterator[tuple[str, Row]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            number = 0
            for batch in pq.ParquetFile(self.path).iter_batches(batch_size=self._chunk_rows):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{self.path.name} row {number}", row
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                f"{self.path.name} can't be read as Parquet: {error}.", fix="give a complete file."
            ) from None

    @contextmanager
    def _text(self) -> Iterator[io.TextIOBase]:
        # newline="" keeps line breaks inside cells, and U+2028 and its like never end a line.
        encoding = "utf-8-sig" if self._encoding.lower() in ("utf-8", "utf8") else self._encoding
        with self.path.open(encoding=encoding, newline="" if self.format != "jsonl" else "\n") as file:
            try:
                yield file
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self.path.name}: byte 0x{error.object[error.start]:02x} is not {error.encoding}.",
                    fix="inferencer.encoding=cp1252, say, if the file is written so.",
                ) from None


def _is_unicode(row: Row) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True
