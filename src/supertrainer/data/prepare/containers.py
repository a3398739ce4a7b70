"""Files of rows, whatever the rows mean: CSV, JSON lines, JSON, YAML and Parquet -> a stream of raw values."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal

import yaml

from supertrainer.core.errors import DataError, MissingDependencyError
from supertrainer.data.prepare.encoding import detect_encoding, open_text
from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.record import Raw, RowFault
from supertrainer.data.prepare.tables import SAMPLE_CHARACTERS, TableFormat, detect_table, read_records

Container = Literal["table", "jsonl", "json", "parquet", "yaml", "text"]
SUFFIXES: dict[str, Container] = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv"), "table"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    ".json": "json",
    ".parquet": "parquet",
    **dict.fromkeys((".yaml", ".yml"), "yaml"),
}
CHUNK_CHARACTERS = 1 << 20
_BETWEEN = re.compile(r"[ \t\r\n,]*")


@dataclass(frozen=True)
class ReadingOptions:
    """What was said about the files on the command line; None is detected."""

    encoding: str | None = None
    container: Container | None = None
    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None


def container_of(file: InputFile, options: ReadingOptions) -> Container:
    """What kind of file it is, by what was said or by its suffix; anything else is text."""
    return options.container or SUFFIXES.get(file.suffix, "text")


@dataclass
class Reader:
    """Reads files, remembering how each is written. `known` are the names of columns that tell a header line."""

    options: ReadingOptions
    known: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._encodings: dict[str, tuple[str, str]] = {}
        self._tables: dict[str, tuple[TableFormat, str]] = {}

    def encoding(self, file: InputFile) -> str:
        """The encoding of a text file, detected once."""
        if self.options.encoding is not None:
            return self.options.encoding
        if file.name not in self._encodings:
            self._encodings[file.name] = detect_encoding(file.path)
        return self._encodings[file.name][0]

    @contextmanager
    def lines(self, file: InputFile, *, newline: str | None = "\n") -> Iterator[IO[str]]:
        """A text file, open."""
        with open_text(file.path, encoding=self.encoding(file), newline=newline) as text:
            yield text

    def table(self, file: InputFile) -> TableFormat:
        """How a table is written, detected once."""
        if file.name not in self._tables:
            with self.lines(file, newline="") as lines:
                sample = lines.read(SAMPLE_CHARACTERS)
                sample += lines.readline() if len(sample) == SAMPLE_CHARACTERS else ""
            said = self.options
            self._tables[file.name] = detect_table(
                sample, known=self.known, delimiter=said.delimiter, quote=said.quote, header=said.header
            )
        return self._tables[file.name][0]

    def rows(self, file: InputFile) -> Iterator[Raw]:
        """The rows of a file as a stream; a row that can't be read is a Raw whose value is a RowFault.

        Raises:
            DataError: the file as a whole can't be read.
        """
        match container_of(file, self.options):
            case "table":
                yield from self._table_rows(file)
            case "jsonl":
                yield from self._json_lines(file)
            case "json":
                yield from self._json(file)
            case "parquet":
                yield from _parquet(file)
            case "yaml":
                yield from self._yaml(file)
            case "text":
                raise AssertionError("a text file has no rows of its own")

    def remarks(self) -> list[str]:
        """How the files were read, a line of each kind."""
        told: dict[str, list[str]] = {}
        for name, (encoding, why) in self._encodings.items():
            if encoding != "utf-8":
                told.setdefault(f"read as {encoding}: {why}", []).append(name)
        for name, (format, why) in self._tables.items():
            told.setdefault(f"read as a table with {format} ({why})", []).append(name)
        return [
            f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: {what}"
            for what, names in told.items()
        ]

    def _table_rows(self, file: InputFile) -> Iterator[Raw]:
        format = self.table(file)
        with self.lines(file, newline="") as lines:
            for line, record, names in read_records(lines, format, where=file.name):
                values = record if isinstance(record, RowFault) else dict(zip(names, record, strict=True))
                yield Raw(values, file.name, line, file.split, file.path)

    def _json_lines(self, file: InputFile) -> Iterator[Raw]:
        with self.lines(file) as lines:  # newline="\n": U+2028 and its like may stand inside a JSON string
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield Raw(_parsed(line), file.name, number, file.split, file.path)

    def _json(self, file: InputFile) -> Iterator[Raw]:
        with self.lines(file) as text:
            start = text.read(CHUNK_CHARACTERS)
            if start.lstrip().startswith("["):
                for number, value in enumerate(_items(text, start, where=file.name), start=1):
                    yield Raw(value, file.name, number, file.split, file.path)
                return
            try:
                whole = json.loads(start + text.read())
            except json.JSONDecodeError as error:
                if "Extra data" not in error.msg:
                    raise DataError(f"{file.name}:{error.lineno}: no JSON: {error.msg}.") from None
                whole = None  # several values: JSON lines that are called .json
        if whole is None:
            yield from self._json_lines(file)
            return
        for number, value in enumerate(_rows_inside(whole, file), start=1):
            yield Raw(value, file.name, number, file.split, file.path)

    def _yaml(self, file: InputFile) -> Iterator[Raw]:
        with self.lines(file) as text:
            try:
                whole = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            except yaml.YAMLError as error:
                raise DataError(f"{file.name} is no YAML: {' '.join(str(error).split())}.") from None
        for number, value in enumerate(_rows_inside(whole, file), start=1):
            yield Raw(value, file.name, number, file.split, file.path)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        return RowFault("the line", f"is no JSON: {error.msg}, column {error.colno}")


def _items(text: IO[str], start: str, *, where: str) -> Iterator[Any]:
    """The items of one JSON list, read piece by piece."""
    decoder = json.JSONDecoder()
    buffer, position, lines_before = start, start.index("[") + 1, 0
    while True:
        position = _BETWEEN.match(buffer, position).end()  # type: ignore[union-attr]
        try:
            if buffer.startswith("]", position):
                return
            value, end = decoder.raw_decode(buffer, position)
            if end < len(buffer) or not (more := text.read(CHUNK_CHARACTERS)):
                yield value
                position = end
                continue
            # A number at the end of the piece may go on in the next one.
        except json.JSONDecodeError as error:
            more = text.read(max(CHUNK_CHARACTERS, len(buffer) - position))
            if not more:
                raise DataError(
                    f"{where}:{lines_before + error.lineno}: no JSON: {error.msg}, column {error.colno}.",
                    why="the list isn't whole, so no row after this place can be read.",
                ) from None
        lines_before += buffer.count("\n", 0, position)
        buffer, position = buffer[position:] + more, 0


def _rows_inside(whole: Any, file: InputFile) -> list[Any]:
    """The rows of a JSON or YAML object: its only list of rows, or the object itself where it has none."""
    if isinstance(whole, list):
        return whole
    lists = {key: value for key, value in whole.items() if isinstance(value, list)} if isinstance(whole, dict) else {}
    # Most of them: an item that is no row is told as one, and doesn't make the whole file a single row.
    of_objects = {k: v for k, v in lists.items() if sum(isinstance(item, dict | list) for item in v) > len(v) / 2}
    if len(of_objects) == 1 and all(isinstance(value, list) for value in whole.values()):
        return next(iter(of_objects.values()))
    if isinstance(whole, dict):
        return [whole]
    raise DataError(f"{file.name} holds neither a list nor an object.", fix="a list of objects, or one object a line.")


def _parquet(file: InputFile) -> Iterator[Raw]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDependencyError("Parquet needs pyarrow.", fix="pip install pyarrow") from None
    numbers = itertools.count(1)
    try:
        for batch in pq.ParquetFile(file.path).iter_batches(batch_size=1024):
            for value in batch.to_pylist():
                yield Raw(value, file.name, next(numbers), file.split, file.path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file.name} is no whole Parquet file: {error}.") from None
