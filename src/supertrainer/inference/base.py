"""What the inferencers of all tasks share: a file is checked as a whole, then predicted chunk by chunk."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import ConfigError, DataError, Problem, raise_all
from supertrainer.core.sources import local_path
from supertrainer.inference.reading import Row, Rows, format_of
from supertrainer.inference.schema import InferencerConfig
from supertrainer.inference.writing import writing

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

SPAN: Mapping[str, type] = {"type": str, "text": str, "start": int, "end": int, "score": float}
"""A span of a text: where it begins and ends in characters, and the model's probability of its tags."""

SHOWN = 5  # places of faulty rows that a message names


@dataclass(frozen=True)
class InferenceResult:
    """What an inference came to.

    Attributes:
        output: the file that was written.
        rows: in it.
        blank: rows among them that had no text and got no prediction.
        seconds: reading, predicting and writing.
    """

    output: Path
    rows: int
    blank: int
    seconds: float


class TaskInferencer(ABC):
    """Predicts the rows of a file. A task says which columns it reads and what it adds to a row."""

    text_key = "inferencer.columns.text"  # that names the column of a row's text

    def __init__(self, config: InferencerConfig) -> None:
        self.config = config

    @abstractmethod
    def text_columns(self) -> Sequence[str]:
        """The columns of the file that hold text."""

    @abstractmethod
    def added_columns(self) -> Mapping[str, type]:
        """The columns that a prediction adds, without the prefix: name -> str, int, float, list (of texts) or dict (a
        list of spans, as `SPAN` says).
        """

    @abstractmethod
    def predict_rows(self, rows: Sequence[Row]) -> list[Row]:
        """What to add to each row, in their order; every row has text."""

    def run(self, *, directory: Path) -> InferenceResult:
        """Predicts `config.input`. Rows keep their order and all their columns.

        Args:
            directory: where the output goes, if the config names none.

        Returns:
            Where the output is, and counts.

        Raises:
            ConfigError: there is no input, or its added columns exist already.
            DataError: the file can't be read, lacks a column, or has rows without text; all rows are looked at first.
            OSError: the disk is full; what was there before is intact.
        """
        started = time.perf_counter()
        rows = self._input()
        output = Path(self.config.output) if self.config.output else directory / f"predictions{rows.path.suffix}"
        format_of(output, key="inferencer.output")
        self._check(rows)
        count = blank = 0
        with writing(output, schema=self._schema(rows)) as writer:
            for chunk in rows:
                predicted = self._predict([row for _, row in chunk])
                writer.write(predicted)
                count += len(predicted)
                blank += sum(not self._has_text(row) for _, row in chunk)
                log.info("%d rows predicted", count)
        return InferenceResult(output, count, blank, time.perf_counter() - started)

    def _input(self) -> Rows:
        if self.config.input is None:
            raise ConfigError("inferencer.input: there is nothing to predict.", fix="inferencer.input=PATH of a file.")
        path = local_path(self.config.input)
        if path is None or not path.is_file():
            raise DataError(
                f"inferencer.input={self.config.input} is no file.",
                why=f"it was looked up from {Path.cwd()}.",
                fix="give the path of a CSV, TSV, JSON lines or Parquet file.",
            )
        return Rows(path, encoding=self.config.encoding, chunk_rows=self.config.chunk_rows)

    def _predict(self, rows: Sequence[Row]) -> list[Row]:
        with_text = [row for row in rows if self._has_text(row)]
        predictions = iter(self.predict_rows(with_text) if with_text else [])
        empty = dict.fromkeys(self.added_columns())
        predicted = []
        for row in rows:
            added = next(predictions) if self._has_text(row) else empty
            predicted.append(row | {self.config.prefix + name: value for name, value in added.items()})
        return predicted

    def _check(self, rows: Rows) -> None:
        """Looks at every row before the first is predicted: a fault in the last one is told now, not in an hour."""
        problems: list[Problem] = []
        empty: list[str] = []
        wrong: list[str] = []
        count = 0
        for chunk in rows:
            if not count:
                problems += self._column_problems(chunk[0][1], rows.path.name)
                raise_all(DataError, problems)
            count += len(chunk)
            for place, row in chunk:
                values = [row.get(column) for column in self.text_columns()]
                if any(value is not None and not self.is_text(value) for value in values):
                    wrong.append(place)
                elif not self._has_text(row):
                    empty.append(place)
        if not count:
            problems.append(Problem(f"{rows.path} has no rows.", fix="give a file with rows."))
        if wrong:
            problems.append(Problem(f"{_listed(wrong)}: the text is no string.", fix="write the text as a string."))
        if empty and self.config.on_empty_text == "error":
            problems.append(
                Problem(
                    f"{_listed(empty)} {'have' if len(empty) > 1 else 'has'} no text.",
                    fix="mend them, or inferencer.on_empty_text=blank keeps such rows without a prediction.",
                )
            )
        raise_all(DataError, problems)

    def _column_problems(self, first: Row, name: str) -> list[Problem]:
        problems = [
            Problem(
                f"{name} has no column {column!r}. It has: {', '.join(first)}.",
                fix=f"{self.text_key}=<one of these>.",
            )
            for column in self.text_columns()
            if column not in first
        ]
        taken = [column for column in self.added_columns() if self.config.prefix + column in first]
        if taken:
            problems.append(
                Problem(
                    f"{name} has a column {self.config.prefix + taken[0]!r} already.",
                    why="a prediction would overwrite it.",
                    fix="inferencer.prefix=model_, say.",
                )
            )
        return problems

    def _has_text(self, row: Row) -> bool:
        values = [row.get(column) for column in self.text_columns()]
        return all(value is not None and self.is_text(value) and "".join(value).strip() for value in values)

    def is_text(self, value: Any) -> bool:
        """Whether a cell holds what is read as a text."""
        return isinstance(value, str)

    def _schema(self, rows: Rows) -> pa.Schema | None:
        schema = rows.schema()
        if schema is None:
            return None
        import pyarrow as pa

        for name, kind in self.added_columns().items():
            schema = schema.append(pa.field(self.config.prefix + name, _arrow_type(kind)))
        return schema


def _arrow_type(kind: type) -> Any:
    import pyarrow as pa

    if kind is dict:
        types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
        return pa.list_(pa.struct([(name, types[of]) for name, of in SPAN.items()]))
    return {str: pa.string(), int: pa.int64(), float: pa.float64(), list: pa.list_(pa.string())}[kind]


def _listed(places: Sequence[str]) -> str:
    rest = f" and {len(places) - SHOWN:,} more rows" if len(places) > SHOWN else ""
    return ", ".join(places[:SHOWN]) + rest
