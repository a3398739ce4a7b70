"""Reads one file of each format into plain columns. No value is guessed or converted; every row keeps its place."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.core.files import cells_of_any_size
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.locate import SourceFile
from supertrainer.data.plain_files import read_texts, read_yaml
from supertrainer.data.schema import DatasetConfig
from supertrainer.data.tables import RawRows, from_arrow, from_dataset, load_saved, read_table

NOT_JSON = Kind("lines that are no JSON", fix="one JSON object a line; dataset.format=json reads one list of objects.")
NOT_AN_OBJECT = Kind("rows that are no JSON objects", fix='write every row as {"column": value, …}.')


def read_file(
    file: SourceFile, config: DatasetConfig, *, findings: Findings, wanted: Sequence[str] | None = None
) -> RawRows:
    """Reads one file or directory.

    Args:
        file: what to read, and its format.
        config: encoding and CSV options.
        findings: takes faulty rows, which are left out, with their line numbers.
        wanted: the columns to read where a format can read some only; None for all.

    Raises:
        DataError: the file as a whole can't be read (empty, in another format or encoding).
    """
    rows = _read(file, config, findings=findings, wanted=wanted)
    rows.folder = file.path if file.path.is_dir() else file.path.parent
    return rows


def _read(file: SourceFile, config: DatasetConfig, *, findings: Findings, wanted: Sequence[str] | None) -> RawRows:
    match file.format:
        case "csv" | "tsv":
            return _read_csv(file, config, findings)
        case "jsonl":
            return _read_json_lines(file, _read_text(file, config, findings), config, findings)
        case "json":
            return _read_json(file, config, findings)
        case "yaml":
            return _from_objects(read_yaml(file, _read_text(file, config, findings)), file, config, findings)
        case "text":
            return read_texts(file, _read_text(file, config, findings), unit=config.text_unit)
        case "folders":
            return _read_folders(file, config, findings)
        case "parquet" | "arrow":
            return from_arrow(read_table(file), name=file.name, wanted=wanted)
        case "saved":
            return from_dataset(load_saved(file), name=file.name, wanted=wanted)
        case "hub":
            raise AssertionError("a Hub set has no file")


def _read_csv(file: SourceFile, config: DatasetConfig, findings: Findings) -> RawRows:
    options = config.csv
    delimiter = options.delimiter or ("\t" if file.format == "tsv" else ",")
    reader = csv.reader(
        io.StringIO(_read_text(file, config, findings), newline=""),
        delimiter=delimiter,
        quotechar=options.quote,
        escapechar=options.escape,
        doublequote=options.escape is None,
        quoting=csv.QUOTE_NONE if options.quote is None else csv.QUOTE_MINIMAL,
        strict=True,
    )
    header: list[str] | None = None if options.column_names is None else list(options.column_names)
    records: list[list[str]] = []
    places: list[str] = []
    for line, record in _numbered_records(reader, file):
        if header is None:
            header = _unique_header(record, file)
        elif len(record) != len(header):
            kind = Kind(
                f"rows with more or fewer cells than the {len(header)} columns",
                why="a delimiter or a quote inside a text that isn't quoted shifts the cells.",
                fix="quote such cells, or set dataset.csv.delimiter or dataset.csv.quote (null for unquoted files).",
            )
            findings.add(kind, where=file.name, place=f"{file.name}:{line} ({len(record)})")
        else:
            records.append(record)
            places.append(f"{file.name}:{line}")
    if header is None or not records:
        raise DataError(f"{file.name} has no rows below its header.", fix="give a file with rows.")
    columns = dict(zip(header, zip(*records, strict=True), strict=True))
    return RawRows(columns, places, tuple(header))


def _numbered_records(reader: Any, file: SourceFile) -> Iterator[tuple[int, list[str]]]:
    """Records that aren't blank, each with the 1-based line on which it starts."""
    line = 1
    with cells_of_any_size():
        try:
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{file.name}:{line}: {error}.",
                why='a cell that starts with a quote must end with one: "…", and hold quotes doubled.',
                fix="mend the row that starts on this line; dataset.csv.quote=null reads a file that quotes nothing.",
            ) from None


def _unique_header(header: list[str], file: SourceFile) -> list[str]:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(
            f"{file.name}:1: the header names the column {twice[0]!r} twice.",
            fix="rename one; or, where line 1 is a row, name the columns in dataset.csv.column_names.",
        )
    return header


def _read_json_lines(file: SourceFile, text: str, config: DatasetConfig, findings: Findings) -> RawRows:
    values: list[tuple[str, Any]] = []
    # split("\n") and not splitlines(): U+2028 and its like may stand inside a JSON string.
    for line, content in enumerate(text.split("\n"), start=1):
        place = f"{file.name}:{line}"
        try:
            if content.strip():
                values.append((place, json.loads(content)))
        except json.JSONDecodeError as error:
            findings.add(NOT_JSON, where=file.name, place=f"{place} ({error.msg}, column {error.colno})")
        except (ValueError, RecursionError) as error:  # valid, but more digits or levels than Python reads
            findings.add(NOT_JSON, where=file.name, place=f"{place} ({str(error).partition(';')[0]})")
    return _from_objects(values, file, config, findings)


def _read_json(file: SourceFile, config: DatasetConfig, findings: Findings) -> RawRows:
    text = _read_text(file, config, findings)
    if text.lstrip().startswith("{") and (by_name := _objects_by_name(text)) is not None:
        named = ((f"{file.name} {name}", value) for name, value in by_name.items())
        return _from_objects(named, file, config, findings)
    if not text.lstrip().startswith("["):
        return _read_json_lines(file, text, config, findings)  # many name JSON lines `.json`
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{file.name}:{error.lineno}: no JSON: {error.msg}, column {error.colno}.") from None
    except (ValueError, RecursionError) as error:  # valid, but more digits or levels than Python reads
        raise DataError(f"{file.name} can't be read: {str(error).partition(';')[0]}.") from None
    numbered = [(f"{file.name} row {number}", value) for number, value in enumerate(values, start=1)]
    return _from_objects(numbered, file, config, findings)


def _objects_by_name(text: str) -> dict[str, Any] | None:
    """The rows of a file that is one object, each under a name of its own; None where it is something else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None  # lines, or broken: told when it is read so
    several = isinstance(value, dict) and len(value) > 1 and all(isinstance(row, dict) for row in value.values())
    return value if several else None


def _from_objects(
    values: Iterable[tuple[str, Any]], file: SourceFile, config: DatasetConfig, findings: Findings
) -> RawRows:
    rows: list[dict[str, Any]] = []
    places: list[str] = []
    listed = config.list_columns
    for place, value in values:
        if listed is not None and isinstance(value, list) and len(value) == len(listed):
            value = dict(zip(listed, value, strict=True))
        if isinstance(value, dict):
            rows.append(value)
            places.append(place)
        else:
            findings.add(NOT_AN_OBJECT, where=file.name, place=place)
    if not rows:
        raise DataError(f"{file.name} has no rows that can be read.", fix="give a file with rows.")
    names = dict.fromkeys(name for row in rows for name in row)
    return RawRows({name: [row.get(name) for row in rows] for name in names}, places, tuple(names))


def _read_folders(file: SourceFile, config: DatasetConfig, findings: Findings) -> RawRows:
    texts: list[str] = []
    labels: list[str] = []
    places: list[str] = []
    classes = sorted(path for path in file.path.iterdir() if path.is_dir() and not path.name.startswith((".", "_")))
    for folder in classes:
        members = sorted(folder.rglob("*.txt"))
        if not members:
            findings.add_problem(f"{folder} holds no .txt file.", why="every folder is a label, every file a row.")
        for path in members:
            name = path.relative_to(file.path).as_posix()
            try:
                texts.append(_decode(path.read_bytes(), config, name=name, findings=findings))
            except DataError as error:
                findings.add_error(error)
                continue
            labels.append(folder.name)
            places.append(name)
    if not classes:
        raise DataError(f"{file.path} holds no folders.", why="in the format `folders` each folder is a label.")
    return RawRows({"text": texts, "label": labels}, places, ("text", "label"))


def _read_text(file: SourceFile, config: DatasetConfig, findings: Findings) -> str:
    try:
        content = gzip.decompress(file.path.read_bytes()) if file.path.suffix == ".gz" else file.path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{file.name} can't be read: {error}.") from None
    text = _decode(content, config, name=file.name, findings=findings)
    if not text.strip():
        raise DataError(f"{file.name} is empty.", fix="give a file with rows.")
    return text


def _decode(content: bytes, config: DatasetConfig, *, name: str, findings: Findings) -> str:
    try:
        return content.decode(config.encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        failed = error
    if config.fallback_encoding is not None:
        try:
            text = content.decode(config.fallback_encoding)
            findings.remark(f"Read as {config.fallback_encoding}, since it is not {config.encoding}", place=name)
            return text.removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            failed = error
    line = content.count(b"\n", 0, failed.start) + 1
    likely = "utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "cp1252"
    raise DataError(
        f"{name}:{line}: byte 0x{content[failed.start]:02x} is not {failed.encoding}.",
        fix=f"dataset.encoding={likely} if all is written so, or dataset.fallback_encoding={likely} for single files.",
    )
