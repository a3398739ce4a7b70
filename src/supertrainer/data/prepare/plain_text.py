"""Raw text: a row a line, a paragraph, or a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from supertrainer.data.prepare.containers import Reader
from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.record import Raw

TextUnit = Literal["line", "paragraph", "file"]


def read_text(files: Sequence[InputFile], reader: Reader, *, unit: TextUnit) -> Iterator[Raw]:
    """The texts of files. Blank lines divide paragraphs and are no rows themselves; `row` is the first line."""
    for file in files:
        with reader.lines(file, newline=None) as lines:
            if unit == "file":
                yield Raw({"text": lines.read(), "file": file.name}, file.name, 1, file.split, file.path)
                continue
            gathered: list[str] = []
            first = 1
            for number, line in enumerate(lines, start=1):
                if line.strip() and unit == "paragraph":
                    first = first if gathered else number
                    gathered.append(line)
                elif line.strip():
                    yield Raw({"text": line.rstrip("\n"), "file": file.name}, file.name, number, file.split, file.path)
                elif gathered:
                    yield _paragraph(gathered, file, first)
                    gathered = []
            if gathered:
                yield _paragraph(gathered, file, first)


def _paragraph(lines: Sequence[str], file: InputFile, first: int) -> Raw:
    return Raw({"text": "".join(lines).rstrip("\n"), "file": file.name}, file.name, first, file.split, file.path)
