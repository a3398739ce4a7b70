"""One file per class (a text a line) and one folder per class (a text a file)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supertrainer.core.errors import DataError
from supertrainer.data.prepare.containers import Reader
from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.labelled import object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault, text_of


def class_name(file: InputFile) -> str:
    """The class of a file that is called after it."""
    return file.path.name.split(".")[0]


def read_class_files(files: Sequence[InputFile], reader: Reader) -> Iterator[Raw]:
    """A text a line; the name of the file is the label. Blank lines are no rows."""
    for file in files:
        with reader.lines(file, newline=None) as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    values = {"text": line.rstrip("\n"), "label": class_name(file), "file": file.name}
                    yield Raw(values, file.name, number, file.split, file.path)


def read_class_folders(files: Sequence[InputFile], reader: Reader) -> Iterator[Raw]:
    """A text a file; the first folder below the source, or below the folder of a split, is the label."""
    for file in files:
        try:
            with reader.lines(file, newline=None) as lines:
                values: dict[str, str] | RowFault = {
                    "text": lines.read(),
                    "label": file.inside.parts[0],
                    "file": file.name,
                }
        except DataError as error:
            values = RowFault("the file", str(error.problems[0].what))
        yield Raw(values, file.name, 1, file.split, file.path)


def convert_class_row(raw: Raw) -> list[Row]:
    """A text with its label."""
    values = object_of(raw)
    return [{"text": text_of(values["text"], "text"), "label": values["label"]}]
