"""Documents in text files: JSON lines, and plain text."""

from __future__ import annotations

import json
import mmap
from pathlib import Path

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.streams.units import Odd, OpenUnit, Unit, runs

_BOM = b"\xef\xbb\xbf"
_NEWLINE = 10


def mapped(path: Path) -> mmap.mmap | bytes:
    """A file's bytes, of which those that are touched get loaded."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


class JsonLines:
    """A file with one JSON object a line."""

    def __init__(self, path: Path, *, name: str, column: str) -> None:
        self.path, self.name, self.column = path, name, column
        self._require_column()

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        """Spans of the file; a line belongs to the span in which it begins."""
        size = self.path.stat().st_size
        spans = [(begin, min(begin + block_bytes, size)) for begin in range(0, size, block_bytes)]
        if not exact:
            return [Unit(span, None, span[1] - span[0]) for span in spans]
        content = mapped(self.path)
        return [Unit(span, len(_lines(content, span)[0]), span[1] - span[0]) for span in spans]

    def numbers(self, unit: Unit) -> np.ndarray:
        return _lines(mapped(self.path), unit.part)[0]

    def open(self, unit: Unit) -> OpenUnit:
        content = mapped(self.path)
        return _OpenLines(self, content, *_lines(content, unit.part))

    def _require_column(self) -> None:
        """Reads the first line: a wrong name of the text is told before any work."""
        with self.path.open("rb") as file:
            line = file.readline().removeprefix(_BOM)
        try:
            first = json.loads(line)
        except (ValueError, RecursionError):
            return  # counted with the rows that are broken
        if isinstance(first, dict) and self.column not in first:
            raise DataError(
                f"{self.name}:1 has no {self.column!r}.",
                why=f"it has {', '.join(first) or 'nothing'}.",
                fix="text_column of the source: the key that holds the text.",
            )


class _OpenLines:
    def __init__(self, file: JsonLines, content: mmap.mmap | bytes, begins: np.ndarray, ends: np.ndarray) -> None:
        self._file, self._content, self._begins, self._ends = file, content, begins, ends
        self.numbers = begins

    def __len__(self) -> int:
        return len(self._begins)

    def read(self, index: int) -> str | bytes | Odd:
        begin = int(self._begins[index])
        line = self._content[begin : int(self._ends[index])]
        if begin == 0:
            line = line.removeprefix(_BOM)
        try:
            row = json.loads(line)
        except UnicodeDecodeError as error:
            return self._with_broken_bytes(line, error)
        except json.JSONDecodeError as error:
            return Odd("broken", f"no JSON: {error.msg}, column {error.colno}")
        except (ValueError, RecursionError) as error:  # valid, but more digits or levels than Python reads
            return Odd("broken", str(error).partition(";")[0])
        return self._text_of(row)

    def place(self, index: int) -> str:
        begin = int(self._begins[index])
        before = sum(self._content[at : min(at + (1 << 20), begin)].count(b"\n") for at in range(0, begin, 1 << 20))
        return f"{self._file.name}:{before + 1}"

    def _text_of(self, row: object) -> str | bytes | Odd:
        if not isinstance(row, dict):
            return Odd("broken", "no JSON object")
        text = row.get(self._file.column)
        if text is None:
            return Odd("null", f"{self._file.column!r} is null or absent")
        return text if isinstance(text, str) else Odd("broken", f"{self._file.column!r} is no text")

    def _with_broken_bytes(self, line: bytes, error: UnicodeDecodeError) -> bytes | Odd:
        """The text with its broken bytes still in it, for the policy to decide about."""
        try:
            row = json.loads(line.decode("utf-8", "surrogateescape"))
        except ValueError:
            return Odd("broken", f"no UTF-8: byte 0x{line[error.start]:02x}")
        text = self._text_of(row)
        return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else Odd("broken", "no UTF-8")


def _lines(content: mmap.mmap | bytes, span: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Where the lines that begin in a span begin and end, empty ones left out: int64."""
    begin, end = span
    window = np.frombuffer(content, dtype=np.uint8, count=end - max(begin - 1, 0), offset=max(begin - 1, 0))
    newlines = np.flatnonzero(window == _NEWLINE) + max(begin - 1, 0)
    del window  # a mapping can't be closed while an array looks into it
    begins = newlines + 1
    if begin == 0:
        begins = np.concatenate([[0], begins])
    begins = begins[begins < end]
    if not len(begins):
        return begins, begins
    last = content.find(b"\n", int(begins[-1]))
    ends = np.concatenate([begins[1:] - 1, [last if last >= 0 else len(content)]])
    lengths = ends - begins
    blank = (lengths == 0) | ((lengths == 1) & np.fromiter((content[at] == 13 for at in begins), bool, len(begins)))
    return begins[~blank], ends[~blank]


class TextFile:
    """A plain text file: one document, or documents with a separator between them."""

    def __init__(self, path: Path, *, name: str, separator: str | None) -> None:
        self.path, self.name = path, name
        self._separator = None if separator is None else separator.encode()
        self._begins, self._ends = self._documents()

    def units(self, *, block_bytes: int, exact: bool) -> list[Unit]:
        sizes = self._ends - self._begins
        return [
            Unit((begin, end), end - begin, int(sizes[begin:end].sum()))
            for begin, end in runs(sizes, block_bytes=block_bytes)
        ]

    def numbers(self, unit: Unit) -> np.ndarray:
        return self._begins[unit.part[0] : unit.part[1]]

    def open(self, unit: Unit) -> OpenUnit:
        begin, end = unit.part
        return _OpenTexts(self, self._begins[begin:end], self._ends[begin:end])

    def _documents(self) -> tuple[np.ndarray, np.ndarray]:
        size = self.path.stat().st_size
        if self._separator is None:
            return np.array([0], dtype=np.int64), np.array([size], dtype=np.int64)
        content = mapped(self.path)
        bounds, at = [], 0
        while True:
            found = content.find(self._separator, at)
            end = found if found >= 0 else size
            if content[at:end].strip():  # what is empty between two separators is no document
                bounds.append((at, end))
            if found < 0:
                break
            at = found + len(self._separator)
        pairs = np.array(bounds, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


class _OpenTexts:
    def __init__(self, file: TextFile, begins: np.ndarray, ends: np.ndarray) -> None:
        self._file, self._begins, self._ends = file, begins, ends
        self._content = mapped(file.path)
        self.numbers = begins

    def __len__(self) -> int:
        return len(self._begins)

    def read(self, index: int) -> bytes:
        begin = int(self._begins[index])
        content = self._content[begin : int(self._ends[index])]
        return content.removeprefix(_BOM) if begin == 0 else content

    def place(self, index: int) -> str:
        begin = int(self._begins[index])
        return f"{self._file.name}:{self._content[:begin].count(_NEWLINE.to_bytes()) + 1}"
