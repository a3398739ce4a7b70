"""CSV in its variants: which delimiter, quotes and header a file has, and its records as a stream."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from supertrainer.core.errors import DataError
from supertrainer.core.files import cells_of_any_size
from supertrainer.data.prepare.record import RowFault, shown

SAMPLE_CHARACTERS = 1 << 16
DELIMITERS = ("\t", ",", ";", "|")
_NAME = re.compile(r"[^\W\d][\w .:/()-]{0,39}")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*")
# (quote, escape) in the order in which they are tried.
_QUOTING: tuple[tuple[str | None, str | None], ...] = (('"', None), ('"', "\\"), ("'", None), (None, None))


@dataclass(frozen=True)
class TableFormat:
    """How a table is written. `header` None: its first line is a row, and columns are called column_1, column_2, …"""

    delimiter: str
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True

    def reader(self, lines: Iterator[str] | IO[str]) -> Any:
        """A strict `csv.reader`."""
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            doublequote=self.escape is None,
            quoting=csv.QUOTE_NONE if self.quote is None else csv.QUOTE_MINIMAL,
            strict=True,
        )

    def __str__(self) -> str:
        name = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar", " ": "space"}.get(self.delimiter)
        quote = "nothing quoted" if self.quote is None else f"quote {self.quote}"
        escape = f", escape {self.escape}" if self.escape else ""
        return (
            f"{name or repr(self.delimiter)} between cells, {quote}{escape}, {'a' if self.header else 'no'} header line"
        )


def detect_table(
    sample: str,
    *,
    known: frozenset[str],
    delimiter: str | None = None,
    quote: str | None = None,
    header: bool | None = None,
) -> tuple[TableFormat, str]:
    """The format of a table and why.

    Args:
        sample: the beginning of the file, whole lines.
        known: names of columns, in lower case, that tell a header line.
        delimiter: given, not detected; so are `quote` ("none" for a file that quotes nothing) and `header`.
    """
    quoting = (
        _QUOTING
        if quote is None
        else ((None, None),)
        if quote == "none"
        else tuple(pair for pair in _QUOTING if pair[0] == quote) or ((quote, None),)
    )
    best: tuple[float, TableFormat, list[list[str]]] | None = None
    for mark, (sign, escape) in itertools.product([delimiter] if delimiter else DELIMITERS, quoting):
        if sign == "'" and quote is None and not sample.lstrip().startswith("'"):
            continue  # an apostrophe inside a text is no quote
        format = TableFormat(mark, sign, escape)
        records = _records(sample, format)
        if records is None:
            continue
        score = _evenness(records)
        if best is None or score > best[0] + 1e-9:
            best = (score, format, records)
    if best is None or not best[2]:
        return TableFormat(delimiter or ",", None, None, header is not False), "no way of reading it fits"
    score, format, records = best
    has_header, why = (header, "as said") if header is not None else _has_header(records, known)
    cells = Counter(map(len, records)).most_common(1)[0][0]
    reason = f"{cells} cells in {min(score, 1):.0%} of the first {len(records)} records; {why}"
    return TableFormat(format.delimiter, format.quote, format.escape, has_header), reason


def _records(sample: str, format: TableFormat) -> list[list[str]] | None:
    """The records of a sample; None where the quoting doesn't fit. The last one may be cut, so it isn't counted."""
    records: list[list[str]] = []
    reader = format.reader(iter(io.StringIO(sample, newline="")))
    with cells_of_any_size():
        while True:
            try:
                records.append(next(reader))
            except StopIteration:
                return [record for record in records if record]
            except csv.Error as error:
                if "unexpected end" in str(error) and len(records) > 1:
                    return [record for record in records if record]
                return None


def _evenness(records: Sequence[Sequence[str]]) -> float:
    """Share of the records that have the commonest number of cells; less than nothing where that is one cell."""
    if not records:
        return -2.0
    cells, count = Counter(map(len, records)).most_common(1)[0]
    return -1.0 if cells < 2 else count / len(records)


def _has_header(records: Sequence[Sequence[str]], known: frozenset[str]) -> tuple[bool, str]:
    first, body = [cell.strip() for cell in records[0]], records[1:]
    if not body:
        return True, "the only line is taken for a header"
    if named := [cell for cell in first if cell.lower() in known]:
        return True, f"line 1 is a header: it names {', '.join(named)}"
    if len(set(first)) < len(first) or not all(first):
        return False, "line 1 is a row: a cell of it is empty or stands twice"
    for index, cell in enumerate(first):
        below = {record[index].strip() for record in body if len(record) > index}
        if cell in below:
            return False, f"line 1 is a row: {shown(cell, length=20)} stands further down too"
        numbers = [value for value in below if _NUMBER.fullmatch(value)]
        if below and len(numbers) == len(below):
            is_row = bool(_NUMBER.fullmatch(cell))
            return not is_row, f"line 1 is a {'row' if is_row else 'header'}: column {index + 1} holds numbers below"
    looks = all(_NAME.fullmatch(cell) and len(cell.split()) <= 4 for cell in first)
    return looks, f"line 1 {'looks' if looks else 'does not look'} like names"


def read_records(
    lines: IO[str], format: TableFormat, *, where: str
) -> Iterator[tuple[int, list[str] | RowFault, tuple[str, ...]]]:
    """The rows of a table: line of the first character, cells or what is wrong with them, names of the columns.

    Raises:
        DataError: a quote that never ends (it swallows the rest of the file), or a header with a name twice.
    """
    reader = format.reader(lines)
    names: tuple[str, ...] | None = None
    line = 1
    with cells_of_any_size():
        while True:
            start = line
            try:
                record: list[str] | RowFault = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if "unexpected end" in str(error):
                    raise DataError(
                        f"{where}:{start}: the quote that begins in this row never ends.",
                        fix=f"end it, or --quote none for a file that quotes nothing (it is read with {format.quote}).",
                    ) from None
                record = RowFault("the row", f"{error} (a quote inside a quoted cell has to be doubled)")
            line = reader.line_num + 1
            if isinstance(record, list):
                if not any(cell.strip() for cell in record) and len(record) <= 1:
                    continue  # a blank line
                if names is None:
                    names = _names(record, format, where=where)
                    if format.header:
                        continue
                if len(record) != len(names):
                    what = f"has {len(record)} cells where there are {len(names)} columns"
                    if len(record) > len(names):
                        what += f" (is a {format.delimiter!r} inside a text that isn't quoted?)"
                    record = RowFault("the row", what)
            yield start, record, names or ()


def _names(record: Sequence[str], format: TableFormat, *, where: str) -> tuple[str, ...]:
    if not format.header:
        return tuple(f"column_{number}" for number in range(1, len(record) + 1))
    names = tuple(cell.strip() or f"column_{number}" for number, cell in enumerate(record, start=1))
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{where}:1: the header names the column {twice[0]!r} twice.",
            fix="rename one; or --header no where line 1 is a row.",
        )
    return names
