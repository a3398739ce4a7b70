"""Texts, or pairs of texts, with one label each: the dataset of sequence classification."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import DataError
from supertrainer.data.base import TaskDataset
from supertrainer.data.findings import Findings
from supertrainer.data.locate import locate_file
from supertrainer.data.readers import read_file
from supertrainer.data.report import LoadReport
from supertrainer.data.rows import Column, Rows, select
from supertrainer.data.schema import BertDatasetConfig, Format
from supertrainer.data.tokenization import encode_texts, resolve_max_length
from supertrainer.data.validation import NO_LABEL, RowChecks

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

MAPPED = (
    "mend the labels, or list all of them in dataset.labels (or map them to names: dataset.labels={0: bad, 1: good})."
)


@dataclass(frozen=True)
class UnlabelledRows:
    """Rows to predict: `rows` as `BertDataset.load` gives them but for the label; `columns` the file's own, in step."""

    rows: datasets.Dataset
    columns: dict[str, Sequence[Any]]


class BertDataset(TaskDataset[BertDatasetConfig]):
    """Sequence classification with one label a row.

    Args:
        config: source, splits, columns, labels and policies.
        seed: the run's seed, for made splits and limits where the config has no `split_seed`.
        label_names: names in the order of the ids of a model that is trained already; None to take them from the
            config or the data.
    """

    def __init__(self, config: BertDatasetConfig, *, seed: int, label_names: Sequence[str] | None = None) -> None:
        super().__init__(config, seed=seed)
        self._model_labels = None if label_names is None else tuple(label_names)
        self._label_names: tuple[str, ...] = self._model_labels or ()
        self._encoded: list[tuple[datasets.Dataset, PreTrainedTokenizerBase, datasets.Dataset]] = []

    @property
    def label_names(self) -> tuple[str, ...]:
        """Label names in the order of their ids."""
        if not self._label_names:
            self.load()
        return self._label_names

    def columns(self) -> list[Column]:
        names = self.config.columns
        declared = [Column("text", names.text, "text", "dataset.columns.text")]
        if names.text_pair is not None:
            declared.append(Column("text_pair", names.text_pair, "text", "dataset.columns.text_pair"))
        return [*declared, Column("label", names.label, "label", "dataset.columns.label")]

    def check(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        """Maps the file's labels to names and checks that every one is known, and learnt from the train rows."""
        policy = self.config.on_missing_label
        checked = {
            s: checks.with_values(s, rows, ["label"], kind=NO_LABEL, policy=policy) for s, rows in splits.items()
        }
        checked = {split: self._renamed(split, rows, checks) for split, rows in checked.items()}
        names = self._declared_names(checked)
        if names:
            what = f"rows with a label that is none of {_listed(names)}"
            checked = {s: checks.with_labels_of(s, rows, names, what=what, fix=MAPPED) for s, rows in checked.items()}
        if self._model_labels is None:
            names, checked = self._learnt(checked, names, checks)
        self._label_names = names
        return checked

    def _learnt(
        self, splits: dict[str, Rows], declared: tuple[str, ...], checks: RowChecks
    ) -> tuple[tuple[str, ...], dict[str, Rows]]:
        """The label names of a model to be trained, and the rows whose label its train rows can teach it."""
        if "train" not in splits:
            if not declared:
                why = "a label's id is its place among the train rows' labels."
                checks.findings.add_problem(
                    "there are no train rows.", why=why, fix="list the labels in dataset.labels."
                )
            return declared, splits
        train = splits["train"]
        trained = {label for label in train.columns["label"] if label is not None}
        names = declared or tuple(sorted(trained, key=_order))
        learnt = [name for name in names if name in trained]
        _check_choice(learnt, rows=len(train), column=self.config.columns.label, findings=checks.findings)
        what, fix = "rows with a label that no train row has", "add train rows of it, or take these rows out."
        return names, {s: checks.with_labels_of(s, rows, learnt, what=what, fix=fix) for s, rows in splits.items()}

    def strata(self, rows: Rows) -> list[str]:
        return [label or "" for label in rows.columns["label"]]

    def label_counts(self, rows: Rows) -> dict[str, int]:
        counts = Counter(rows.columns["label"])
        return {name: counts[name] for name in self._label_names}

    def to_dataset(self, rows: Rows) -> datasets.Dataset:
        """`text`, `text_pair` where there is one, `label` (the id; its feature has the names), `source_row`."""
        import datasets

        features = {key: datasets.Value("string") for key in (*rows.columns, "source_row")}
        features["label"] = datasets.ClassLabel(names=list(self._label_names))
        ids = {name: index for index, name in enumerate(self._label_names)}
        labels = [ids[label] for label in rows.columns["label"] if label is not None]
        columns = {**rows.columns, "label": labels, "source_row": rows.places}
        return datasets.Dataset.from_dict(columns, features=datasets.Features(features))

    def read_unlabelled(self, path: str, *, format: Format | None = None) -> UnlabelledRows:
        """Reads a file to predict. The label column may be missing; every column is kept for the output.

        Raises:
            ConfigError: the file isn't there.
            DataError: a text column is missing, or rows have no text (with `on_empty_text: drop` they are left out).
        """
        files = locate_file(path, declared=format)
        if len(files) != 1:
            raise DataError(f"{path} holds {len(files)} files.", fix="name one of them.")
        checks = RowChecks(self.config, self.text_columns, Findings(), LoadReport())
        raw = read_file(files[0], self.config, findings=checks.findings)
        texts = [column for column in self.columns() if column.kind == "text"]
        rows = checks.with_text(files[0].name, select(raw, texts, where=files[0].name, findings=checks.findings))
        checks.findings.raise_if_any()
        kept = set(rows.places)
        indices = [index for index, place in enumerate(raw.places) if place in kept]
        return UnlabelledRows(super().to_dataset(rows), {n: [v[i] for i in indices] for n, v in raw.columns.items()})

    def encode(self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Encodes rows of `load` or `read_unlabelled`; the same rows and tokenizer again give the same object.

        Returns:
            `input_ids`, `token_type_ids` where the model takes them, `length`, `truncated` (as `encode_texts`), and
            `labels` (int) where the rows have a label.

        Raises:
            ConfigError: `dataset.max_length` is more than the tokenizer's limit.
        """
        for before, same_tokenizer, encoded in self._encoded:
            if before is rows and same_tokenizer is tokenizer:
                return encoded
        max_length = resolve_max_length(self.config.max_length, tokenizer)
        pairs = rows["text_pair"] if "text_pair" in rows.column_names else None
        encoded = encode_texts(rows["text"], tokenizer, max_length=max_length, pairs=pairs)
        if "label" in rows.column_names:
            encoded = encoded.add_column("labels", rows["label"])
        if cut := sum(encoded["truncated"]):
            log.info("%d of %d rows are longer than %d tokens and were cut.", cut, len(rows), max_length)
        self._encoded.append((rows, tokenizer, encoded))
        return encoded

    def _renamed(self, split: str, rows: Rows, checks: RowChecks) -> Rows:
        names = self.config.labels
        if not isinstance(names, dict):
            return rows
        what = f"rows with a label that dataset.labels doesn't map (it has {_listed(list(names))})"
        rows = checks.with_labels_of(split, rows, list(names), what=what, fix="map it too, or mend the labels.")
        labels: list[str | None] = [names[label] for label in rows.columns["label"] if label is not None]
        return Rows({**rows.columns, "label": labels}, rows.places)

    def _declared_names(self, splits: Mapping[str, Rows]) -> tuple[str, ...]:
        """The label names that the model, the config or the data itself lists; empty where none does."""
        if self._model_labels is not None:
            return self._model_labels
        listed = self.config.labels
        if listed is not None:
            return tuple(dict.fromkeys(listed.values() if isinstance(listed, dict) else listed))
        return next((rows.class_names for rows in splits.values() if rows.class_names is not None), ())


def _order(label: str) -> tuple[int, int, str]:
    """Whole numbers by value and before all else, the rest by letters."""
    digits = label.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and str(int(label)) == label
    return (0, int(label), "") if whole else (1, 0, label)


def _check_choice(learnt: Sequence[str], *, rows: int, column: str, findings: Findings) -> None:
    if rows and len(learnt) < 2:
        findings.add_problem(
            f"all {rows} train rows have the label {learnt[0]!r}." if learnt else "no train row has a known label.",
            why="there is nothing to tell apart.",
            fix=f"rows of other labels, or dataset.columns.label: another column than {column!r}.",
        )
    elif len(learnt) > max(20, rows // 2):
        findings.add_problem(
            f"the column {column!r} holds {len(learnt)} different labels in {rows} train rows.",
            why="most labels stand on one row, as an id or a measurement would.",
            fix="dataset.columns.label: the column with the classes.",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
