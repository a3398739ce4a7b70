"""The checks of rows and splits: each notes what is wrong, with row numbers, and gives back the rows that are left."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.findings import SHOWN, Findings, Kind
from supertrainer.data.report import LoadReport
from supertrainer.data.rows import Rows
from supertrainer.data.schema import SPLITS, DatasetConfig, Policy
from supertrainer.data.splitting import Key, text_key, too_small
from supertrainer.data.values import is_blank, names_in

NO_TEXT = Kind("rows without text", fix="mend them, or dataset.on_empty_text=drop.")
NO_LABEL = Kind("rows without label", fix="mend them, or dataset.on_missing_label=drop.")
REPEATED = Kind(
    "rows that repeat the text of an earlier row of the split",
    fix="mend the file, or dataset.on_repeated_rows=drop or keep.",
)
CONFLICTING = Kind(
    "rows that repeat a text with another label",
    why="no policy knows which label is right.",
    fix="mend the labels, or remove one; dataset.on_repeated_rows=keep trains on all of them.",
)
ACROSS = Kind(
    "rows that stand in two splits",
    why="a model that was trained on a row is not tested by it.",
    fix="mend the files, or dataset.on_repeated_across_splits=drop (out of train first).",
)


@dataclass
class RowChecks:
    """Checks rows split by split. Each check notes what is wrong or dropped, and gives back the rows that are left."""

    config: DatasetConfig
    text_columns: Sequence[str]
    findings: Findings
    report: LoadReport

    def keys(self, rows: Rows) -> list[Key]:
        """The identity of every row's texts; a missing text counts as an empty one."""
        texts = zip(*(rows.columns[column] for column in self.text_columns), strict=True)
        return [text_key([_one_text(value) for value in row]) for row in texts]

    def with_text(self, split: str, rows: Rows) -> Rows:
        """The rows whose texts are more than white space."""
        return self.with_values(split, rows, self.text_columns, kind=NO_TEXT, policy=self.config.on_empty_text)

    def with_values(
        self, split: str, rows: Rows, columns: Sequence[str], *, kind: Kind, policy: Policy, may_be_empty: bool = False
    ) -> Rows:
        """The rows that have a value in every one of the columns; the others are `kind`.

        Args:
            may_be_empty: an empty list is a value.
        """
        lacking = {
            i
            for column in columns
            for i, value in enumerate(rows.columns[column])
            if (value is None if may_be_empty else is_blank(value))
        }
        self.treat(split, rows, dict.fromkeys(sorted(lacking), ""), kind=kind, policy=policy)
        return rows.without(lacking)

    def treat(self, split: str, rows: Rows, faulty: Mapping[int, str], *, kind: Kind, policy: Policy) -> None:
        """Notes faulty rows with what is wrong, or counts them as dropped."""
        if policy == "drop":
            self.report.drop(split, kind.reason, len(faulty))
            return
        for index, fault in faulty.items():
            place = rows.places[index]
            self.findings.add(kind, where=split, place=f"{place} ({fault})" if fault else place)

    def without_repeats(self, split: str, rows: Rows) -> Rows:
        """Treats texts that stand in the split more than once by `on_repeated_rows`."""
        policy = self.config.on_repeated_rows
        first: dict[Key, int] = {}
        conflicting: set[Key] = set()
        repeated: set[int] = set()
        for index, key in enumerate(self.keys(rows)):
            before = first.setdefault(key, index)
            if before == index:
                continue
            repeated.add(index)
            differs = rows.label(index) != rows.label(before)
            if differs:
                conflicting.add(key)
            if policy == "error" or (policy == "drop" and differs):
                kind = CONFLICTING if differs else REPEATED
                self.findings.add(kind, where=split, place=f"{rows.place(index)} = {rows.place(before)}")
        if policy == "drop":
            self.report.drop(split, "repeated text", len(repeated))
            return rows.without(repeated)
        self.report.repeated.update({split: len(repeated)} if repeated else {})
        self.report.conflicting.update({split: len(conflicting)} if conflicting else {})
        return rows

    def without_repeats_across(self, splits: Mapping[str, Rows]) -> dict[str, Rows]:
        """Treats texts that stand in two splits. Test rows stay, then validation rows."""
        seen: dict[Key, str] = {}
        kept: dict[str, Rows] = {}
        for split in reversed([split for split in SPLITS if split in splits]):
            rows = splits[split]
            keys = self.keys(rows)
            again = {index for index, key in enumerate(keys) if key in seen}
            if self.config.on_repeated_across_splits == "error":
                for index in sorted(again):
                    self.findings.add(ACROSS, where=split, place=f"{rows.place(index)} = {seen[keys[index]]}")
            else:
                self.report.drop(split, "text of a later split", len(again))
            kept[split] = rows.without(again)
            seen |= {key: rows.place(index) for index, key in enumerate(keys) if key not in seen}
        return {split: kept[split] for split in splits}

    def with_labels_of(self, split: str, rows: Rows, names: Sequence[str], *, what: str, fix: str) -> Rows:
        """The rows whose labels are all of `names`; the others `what`, and are noted with the nearest name."""
        kind = Kind(what, fix=fix)
        known = frozenset(names)
        strange: dict[str, str] = {}
        faulty: set[int] = set()
        for index, value in enumerate(rows.columns["label"]):
            label = next((label for label in names_in(value) if label not in known), None)
            if label is not None:
                faulty.add(index)
                if label not in strange:
                    # The search for the nearest is slow, and only the first rows are shown.
                    near = difflib.get_close_matches(label, names, n=1) if len(strange) < SHOWN else []
                    strange[label] = f"{label!r}, nearest: {near[0]!r}" if near else repr(label)
                self.findings.add(kind, where=split, place=f"{rows.places[index]} ({strange[label]})")
        return rows.without(faulty)

    def can_be_divided(self, rows: Rows, strata: Sequence[str], *, made: Mapping[str, float]) -> None:
        """Notes every stratum with too few different texts for one in each split."""
        names = ", ".join(["train", *made])
        for stratum, count in too_small(self.keys(rows), strata, splits=1 + len(made)).items():
            of_it = f"the label {stratum!r} has" if stratum else "the rows have"  # of a task that keeps no proportions
            self.findings.add_problem(
                f"{of_it} {count} different text{'s' * (count > 1)}: too few for {names}.",
                why=f"{'every label needs' if stratum else 'there has to be'} a row in each of them.",
                fix=f"more rows{' of it, none of it,' * bool(stratum)} or files for the splits instead of shares.",
            )


def _one_text(value: Any) -> str:
    return " ".join(value) if isinstance(value, list) else value or ""


def require_step(rows: int, *, global_batch_size: int) -> None:
    """Checks that the train rows fill one optimizer step.

    Raises:
        DataError: they don't; names the smallest change that mends it.
    """
    if rows < global_batch_size:
        raise DataError(
            f"the train split has {rows} rows, fewer than trainer.global_batch_size={global_batch_size}.",
            why="not one optimizer step can be filled.",
            fix=f"trainer.global_batch_size={rows} or less, or {global_batch_size - rows} more train rows.",
        )
