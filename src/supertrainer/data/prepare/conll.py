"""Words below each other, a column of tags beside them, a blank line between sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from supertrainer.core.errors import ConfigError
from supertrainer.data.prepare.containers import Reader
from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.record import Raw, RowFault

DOCUMENT = "-DOCSTART-"
_UNIVERSAL = 10  # columns of CoNLL-U: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC
_WHOLE_ID = re.compile(r"\d+")


@dataclass(frozen=True)
class ColumnFormat:
    """How the lines of a CoNLL file are divided; columns are counted from 1."""

    cells: int
    tabs: bool
    word: int
    tag: int

    @property
    def universal(self) -> bool:
        """Whether it is CoNLL-U, whose lines begin with the number of the word."""
        return self.cells == _UNIVERSAL and self.tabs

    def split(self, line: str) -> list[str]:
        """The cells of a line."""
        return line.split("\t") if self.tabs else line.split()


def detect_columns(lines: Sequence[str], *, word: int | None, tag: int | None) -> tuple[ColumnFormat, str] | None:
    """The columns of a CoNLL file by its first lines, and why; None where it is none.

    Args:
        word, tag: the columns of word and tag as said, from 1, or from the end where negative.

    Raises:
        ConfigError: there is no such column.
    """
    lines = [line for line in lines if line.strip()]
    counted = [line for line in lines if not line.startswith(("#", DOCUMENT))]
    if not counted:
        return None
    tabs = sum("\t" in line for line in counted) > len(counted) / 2
    cells = Counter(len(line.split("\t") if tabs else line.split()) for line in counted)
    columns, count = cells.most_common(1)[0]
    if columns < 2 or count < 0.9 * len(counted):
        return None
    universal = columns == _UNIVERSAL and tabs
    places = [(1 + universal) if word is None else word, (4 if universal else columns) if tag is None else tag]
    for name, place in zip(("--word-column", "--tag-column"), places, strict=True):
        if not 1 <= abs(place) <= columns:
            raise ConfigError(f"{name} {place}: the lines have {columns} columns.", fix=f"{name} 1 to {columns}.")
    word, tag = (place if place > 0 else columns + 1 + place for place in places)
    reason = f"{columns} columns in {count} of the first {len(counted)} lines; words in column {word}, tags in {tag}"
    return ColumnFormat(columns, tabs, word, tag), reason


def read_conll(files: Sequence[InputFile], reader: Reader, format: ColumnFormat) -> Iterator[Raw]:
    """The sentences: words and tags, and the document, which `-DOCSTART-` or CoNLL-U's `# newdoc` begins."""
    for file in files:
        document = 0
        gathered: list[tuple[int, str]] = []
        with reader.lines(file, newline=None) as lines:
            for number, line in enumerate(lines, start=1):
                line = line.rstrip("\n")
                begins = line.startswith(DOCUMENT) or (not gathered and line.startswith("# newdoc"))
                comment = not gathered and line.startswith("#") and len(format.split(line)) != format.cells
                if line.strip() and not begins and not comment:
                    gathered.append((number, line))
                    continue
                document += begins
                if gathered and not comment:
                    yield _sentence(gathered, file, document - begins, format)
                    gathered = []
            if gathered:
                yield _sentence(gathered, file, document, format)


def _sentence(lines: Sequence[tuple[int, str]], file: InputFile, document: int, format: ColumnFormat) -> Raw:
    words: list[str] = []
    tags: list[str] = []
    values: dict[str, object] | RowFault = {"tokens": words, "tags": tags, "document": f"{file.name}#{document}"}
    for number, line in lines:
        cells = format.split(line)
        if len(cells) != format.cells:
            values = RowFault(f"line {number}", f"has {len(cells)} columns, not {format.cells}: {line[:60]!r}")
            break
        if format.universal and not _WHOLE_ID.fullmatch(cells[0]):
            continue  # 3-4 is the contraction of the words 3 and 4, 8.1 a word that isn't there
        words.append(cells[format.word - 1].strip())
        tags.append(cells[format.tag - 1].strip())
    return Raw(values, file.name, lines[0][0], file.split, file.path)
