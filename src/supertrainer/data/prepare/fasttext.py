"""fastText's files: `__label__sports __label__news A text.`, a row a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from supertrainer.data.prepare.containers import Reader
from supertrainer.data.prepare.inputs import InputFile
from supertrainer.data.prepare.labelled import label_of, object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault

MARK = "__label__"


def read_fasttext(files: Sequence[InputFile], reader: Reader) -> Iterator[Raw]:
    """The lines, with the labels taken from their beginnings."""
    for file in files:
        with reader.lines(file, newline=None) as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                labels, rest = [], line.strip()
                while rest.startswith(MARK):
                    word, _, rest = rest.partition(" ")
                    labels.append(word.removeprefix(MARK))
                    rest = rest.lstrip()
                yield Raw({"text": rest, "labels": labels}, file.name, number, file.split, file.path)


def convert_fasttext(task: str) -> Callable[[Raw], list[Row]]:
    """A text with its label, its labels, or alone."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        labels = [label_of(label, MARK) for label in values["labels"]]
        if task == "sequence_classification" and len(labels) != 1:
            raise RowFault(MARK, f"stands {len(labels)} times (--task multi_label takes several)")
        target: Row = {"label": labels[0]} if task == "sequence_classification" else {"labels": labels}
        return [{"text": values["text"], **({} if task == "text" else target)}]

    return convert
