"""One folder of pictures per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.record import Raw


def read_picture_folders(files: Sequence[InputFile]) -> Iterator[Raw]:
    """A picture a row; the first folder below the source, or below the folder of a split, is the label."""
    for file in files:
        values = {"image": str(file.path.resolve()), "label": file.inside.parts[0], "file": file.name}
        yield Raw(values, file.name, 1, file.split, file.path)
