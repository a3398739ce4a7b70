"""What the datasets of all tasks share: from a source to checked splits."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supertrainer.data.collation import EncodedRows
from supertrainer.data.findings import Findings
from supertrainer.data.preview import RowView, TextView, row_views
from supertrainer.data.report import LoadReport, Splits
from supertrainer.data.rows import Column, Rows, select
from supertrainer.data.schema import SPLITS, DatasetConfig
from supertrainer.data.sources import read_splits
from supertrainer.data.splitting import divide, sample
from supertrainer.data.tables import RawRows
from supertrainer.data.validation import RowChecks

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)
ConfigT = TypeVar("ConfigT", bound=DatasetConfig)


class TaskDataset(ABC, Generic[ConfigT]):
    """Rows of one task. A task says which columns it has, how their rows are checked and how they are encoded.

    The way is the same for all: read every split that the source holds, check the rows, make the splits that are asked
    for as shares, sample down to the limits. Everything that is wrong is told at once, before any training.
    """

    def __init__(self, config: ConfigT, *, seed: int) -> None:
        self.config = config
        self.seed = seed
        self._splits: Splits | None = None
        self._fingerprint: dict[str, Any] = {}

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the classes in the order of their ids; empty where a task has none."""
        return ()

    @abstractmethod
    def columns(self) -> Sequence[Column]:
        """The columns that rows are read from."""

    @abstractmethod
    def encode(self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """The rows as token ids, in their order."""

    def model_rows(self, split: str, tokenizer: PreTrainedTokenizerBase) -> Any:
        """A split as a model takes it: `EncodedRows`, or something of the same form."""
        return EncodedRows(self.encode(self.load()[split], tokenizer))

    @property
    def wanted_columns(self) -> list[str]:
        """The columns to read where a format can read some only."""
        return [column.name for column in self.columns()]

    def to_rows(self, raw: RawRows, *, where: str, findings: Findings) -> Rows:
        """What a file holds as rows of the declared columns; `where` names the file in findings."""
        return select(raw, self.columns(), where=where, findings=findings)

    def views(self, split: str, count: int, tokenizer: PreTrainedTokenizerBase) -> Sequence[RowView | TextView]:
        """The first rows of a split as the model sees them, as one batch."""
        rows, source = self.model_rows(split, tokenizer), self.load()[split]
        numbers = list(range(min(count, len(rows))))
        return row_views(
            rows,
            numbers,
            tokenizer=tokenizer,
            label_names=self.label_names,
            places=self._places(self.encode(source, tokenizer), source, numbers),
        )

    def _places(self, encoded: datasets.Dataset, source: datasets.Dataset, numbers: Sequence[int]) -> list[str]:
        """Where encoded rows come from: a row may be a window of a text, or rows may have been left out."""
        of = next((name for name in ("document", "row") if name in encoded.column_names), None)
        origins = numbers if of is None else [encoded[of][number] for number in numbers]
        return [source["source_row"][origin] for origin in origins]

    def check(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        """Checks what only this task knows of; gives back the rows that are left."""
        return dict(splits)

    def unit_keys(self, rows: Rows, checks: RowChecks) -> Sequence[bytes]:
        """Rows with the same key stay on one side of made splits."""
        return checks.keys(rows)

    def strata(self, rows: Rows) -> Sequence[str]:
        """The stratum of each row, whose proportions made splits and limits keep."""
        return [""] * len(rows)

    def label_counts(self, rows: Rows) -> dict[str, int]:
        """Rows of each label, for the report; empty for a task without labels."""
        return {}

    def to_dataset(self, rows: Rows) -> datasets.Dataset:
        """Checked rows as a `datasets.Dataset`, with the column `source_row` that says where each one stands."""
        import datasets

        return datasets.Dataset.from_dict({**rows.columns, "source_row": rows.places})

    def load(self) -> Splits:
        """Reads, checks and splits the rows; the second call gives the same object.

        Raises:
            ConfigError: the source isn't there.
            DataError: everything that is wrong with files, columns, rows and splits, at once.
        """
        if self._splits is None:
            self._splits = self._load()
        return self._splits

    def fingerprint(self) -> dict[str, Any]:
        """What was read: {file: {size in bytes, mtime_ns, sha256}} by names relative to the source; for a Hub set
        {id: {commit}}.
        """
        self.load()
        return self._fingerprint

    @property
    def text_columns(self) -> list[str]:
        """Our names of the columns that hold text."""
        return [column.key for column in self.columns() if column.kind in ("text", "words")]

    def _load(self) -> Splits:
        checks = RowChecks(self.config, self.text_columns, Findings(), LoadReport())
        findings, report = checks.findings, checks.report
        given, self._fingerprint = read_splits(
            self.config, wanted=self.wanted_columns, to_rows=self.to_rows, findings=findings
        )
        if findings.problems and "train" not in given:
            findings.raise_if_any()  # without train rows the checks below would blame the rest
        report.read = {split: len(rows) for split, rows in given.items()}
        given = {split: checks.with_text(split, rows) for split, rows in given.items()}
        given = self.check(given, checks)
        given = {split: checks.without_repeats(split, rows) for split, rows in given.items()}
        splits = self._limited(self._divided(checks.without_repeats_across(given), checks), checks)
        empty = [split for split, rows in splits.items() if not len(rows)]
        for split in empty if findings.is_empty else ():  # else it follows from what is wrong already
            findings.add_problem(f"{split} has no rows left.", fix=f"dataset.splits.{split}: another file, or null.")
        findings.raise_if_any()
        report.rows = {split: len(rows) for split, rows in splits.items()}
        report.labels = {split: counts for split, rows in splits.items() if (counts := self.label_counts(rows))}
        report.notes = findings.remarks()
        for line in report.lines():
            log.info(line)
        return Splits({split: self.to_dataset(rows) for split, rows in splits.items()}, report)

    def _divided(self, given: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        made = self.config.splits.made() if self.config.splits else {}
        if not made or "train" not in given:
            return dict(given)
        rows = given["train"]
        strata = self.strata(rows)
        checks.can_be_divided(rows, strata, made=made)
        checks.report.made, checks.report.stratified = made, len(set(strata)) > 1
        divided = divide(self.unit_keys(rows, checks), strata, shares=made, seed=self._split_seed)
        splits = {**given, **{split: rows.take(indices) for split, indices in divided.items()}}
        return {split: splits[split] for split in SPLITS if split in splits}

    def _limited(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        limited: dict[str, Rows] = {}
        for split, rows in splits.items():
            limit = self.config.limits.of(split)
            if limit is not None and limit < len(rows):
                checks.report.limited[split] = len(rows) - limit
                rows = rows.take(sample(checks.keys(rows), self.strata(rows), limit=limit, seed=self._split_seed))
            limited[split] = rows
        return limited

    def _split_of(self, rows: datasets.Dataset) -> str | None:
        found = {} if self._splits is None else self._splits.rows
        return next((name for name, split in found.items() if split is rows), None)

    def _report(self, rows: datasets.Dataset, lines: Sequence[str]) -> None:
        """Says what became of rows, in the log and, for a whole split, among the notes of the report."""
        split = self._split_of(rows)
        for line in lines:
            log.info(line if split is None else f"{split}: {line}")
            note = f"{split}: {line}"
            if self._splits is not None and split is not None and note not in self._splits.report.notes:
                self._splits.report.notes.append(note)

    @property
    def _split_seed(self) -> int:
        return self.seed if self.config.split_seed is None else self.config.split_seed
