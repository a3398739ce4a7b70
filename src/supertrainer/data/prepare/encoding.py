"""Text files in any encoding, as streams."""

from __future__ import annotations

import codecs
import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from supertrainer.core.errors import DataError

CHUNK_BYTES = 1 << 20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def detect_encoding(path: Path) -> tuple[str, str]:
    """The encoding of a text file and why: by its byte order mark, else UTF-8 where all of it is, else cp1252.

    Raises:
        DataError: the file can't be read.
    """
    with open_bytes(path) as file:
        start = file.read(4)
        for mark, name in _MARKS:
            if start.startswith(mark):
                return name, "it begins with a byte order mark"
        if _decodes(start, file, "utf-8"):
            return "utf-8", "every byte of it is UTF-8"
    with open_bytes(path) as file:
        name = "cp1252" if _decodes(b"", file, "cp1252") else "latin-1"
    return name, "it has no byte order mark and isn't UTF-8"


def _decodes(start: bytes, file: IO[bytes], encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        decoder.decode(start)
        while chunk := file.read(CHUNK_BYTES):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file, unpacking `.gz`.

    Raises:
        DataError: it isn't there, can't be read, or is no whole gzip file.
    """
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file  # type: ignore[misc]
    except (OSError, EOFError) as error:
        raise DataError(f"{path} can't be read: {error}.") from None


@contextmanager
def open_text(path: Path, *, encoding: str, newline: str | None = "\n") -> Iterator[IO[str]]:
    """Opens a text file; a byte order mark is skipped.

    Args:
        newline: as for `open`: "\\n" ends lines there alone, "" also at "\\r" and leaves them, None translates.

    Raises:
        DataError: it can't be read, or isn't in `encoding`.
    """
    with open_bytes(path) as file:
        try:
            text = io.TextIOWrapper(file, encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline=newline)
            yield text
            text.detach()
        except UnicodeError as error:
            raise DataError(
                f"{path} is not {encoding}: {error}.",
                fix="--encoding: its own (cp1252, latin-1, utf-16, …), or leave it out to have it detected.",
            ) from None
