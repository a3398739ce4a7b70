"""Texts and what an encoder's head learns from them: a label, labels, a number, a tag a word, or the text itself."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supertrainer.config.tasks import DEFAULT_TASK, NAMED_TASKS, WHOLE_TEXT_TASKS, Task
from supertrainer.core import iob2
from supertrainer.core.errors import DataError
from supertrainer.data import labels
from supertrainer.data.base import TaskDataset
from supertrainer.data.collation import EncodedRows
from supertrainer.data.findings import Findings
from supertrainer.data.locate import locate_file
from supertrainer.data.masking import MaskedRows
from supertrainer.data.readers import read_file
from supertrainer.data.report import LoadReport
from supertrainer.data.rows import Column, Rows, select
from supertrainer.data.schema import BertDatasetConfig, Format
from supertrainer.data.tokenization import encode_texts, encode_windows, resolve_max_length
from supertrainer.data.validation import NO_LABEL, RowChecks
from supertrainer.data.words import cut_words, encode_words

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

_LABEL_KINDS: dict[Task, Any] = {
    "sequence_classification": "label",
    "multi_label": "labels",
    "regression": "number",
    "token_classification": "tags",
}


@dataclass(frozen=True)
class UnlabelledRows:
    """Rows to predict: `rows` as `BertDataset.load` gives them but for the label; `columns` the file's own, in step."""

    rows: datasets.Dataset
    columns: dict[str, Sequence[Any]]


class BertDataset(TaskDataset[BertDatasetConfig]):
    """Rows for one head of an encoder.

    Args:
        config: source, splits, columns, labels and policies.
        seed: the run's seed, for made splits and limits where the config has no `split_seed`.
        label_names: names in the order of the ids of a model that is trained already; None to take them from the
            config or the data.
        task: the head that the rows are for.
    """

    def __init__(
        self,
        config: BertDatasetConfig,
        *,
        seed: int,
        label_names: Sequence[str] | None = None,
        task: Task = DEFAULT_TASK,
    ) -> None:
        super().__init__(config, seed=seed)
        self.task: Task = task
        self._model_labels = None if label_names is None else tuple(label_names)
        self._label_names: tuple[str, ...] = self._model_labels or ()
        self._encoded: list[tuple[datasets.Dataset, PreTrainedTokenizerBase, datasets.Dataset]] = []

    @property
    def label_names(self) -> tuple[str, ...]:
        """Label names in the order of their ids: for regression the name of the column, for masked_lm none."""
        if not self._label_names and self.task != "masked_lm":
            self.load()
        return self._label_names

    def columns(self) -> list[Column]:
        names = self.config.columns
        kind: Any = "words" if self.task == "token_classification" else "text"
        declared = [Column("text", names.text, kind, "dataset.columns.text")]
        if names.text_pair is not None:
            declared.append(Column("text_pair", names.text_pair, "text", "dataset.columns.text_pair"))
        if self.task == "masked_lm":
            return declared
        separator = self.config.label_separator
        label = Column("label", names.label, _LABEL_KINDS[self.task], "dataset.columns.label", separator=separator)
        return [*declared, label]

    def check(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        """Maps the file's labels to names and checks that every one is known, and learnt from the train rows."""
        if self.task == "masked_lm":
            return dict(splits)
        policy, empty = self.config.on_missing_label, self.task == "multi_label"
        checked = {
            split: checks.with_values(split, rows, ["label"], kind=NO_LABEL, policy=policy, may_be_empty=empty)
            for split, rows in splits.items()
        }
        if self.task in NAMED_TASKS:
            return self._with_names(checked, checks)
        self._label_names = self._model_labels or (self.config.columns.label,)
        if "train" in checked:
            labels.learnable_numbers(checked["train"], column=self.config.columns.label, findings=checks.findings)
        return checked

    def _with_names(self, splits: dict[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        checked = {split: labels.renamed(split, rows, self.config, checks) for split, rows in splits.items()}
        if self.task == "token_classification":
            checked = {split: labels.aligned_tags(split, rows, self.config, checks) for split, rows in checked.items()}
        names = self._model_labels or labels.declared_names(self.config, checked)
        if names:
            checked = labels.known_labels(checked, names, checks)
        if self._model_labels is None:
            column = self.config.columns.label
            several = self.task == "multi_label"
            names, checked = labels.learnt_names(checked, names, checks, column=column, several=several)
        self._label_names = names
        return checked

    def strata(self, rows: Rows) -> list[str]:
        if self.task != "sequence_classification":
            return [""] * len(rows)
        return [label or "" for label in rows.columns["label"]]

    def label_counts(self, rows: Rows) -> dict[str, int]:
        """Rows of each label; for tags words of each type of span, or of each tag."""
        if self.task not in NAMED_TASKS:
            return {}
        counts = labels.count_labels(rows)
        if self.task == "token_classification" and iob2.is_iob2(self._label_names):
            return {name: counts[f"B-{name}"] for name in iob2.types_of(self._label_names)}
        return {name: counts[name] for name in self._label_names}

    def to_dataset(self, rows: Rows) -> datasets.Dataset:
        """`text`, `text_pair` where there is one, `label`, `source_row`.

        `label` is an id (its feature has the names); for multi_label 0.0 or 1.0 for every label, in the order of their
        ids; for regression a number; for token_classification the id of every word's tag.
        """
        import datasets

        text = datasets.Value("string")
        features: dict[str, Any] = dict.fromkeys((*rows.columns, "source_row"), text)
        columns: dict[str, Any] = {**rows.columns, "source_row": rows.places}
        if self.task == "token_classification":
            features["text"] = datasets.List(text)
        if "label" in rows.columns:
            features["label"], columns["label"] = self._ids(rows.columns["label"])
        return datasets.Dataset.from_dict(columns, features=datasets.Features(features))

    def _ids(self, given: Sequence[Any]) -> tuple[Any, list[Any]]:
        import datasets

        ids = {name: index for index, name in enumerate(self._label_names)}
        match self.task:
            case "multi_label":
                hot = [[float(name in label) for name in self._label_names] for label in given]
                return datasets.List(datasets.Value("float32")), hot
            case "regression":
                return datasets.Value("float64"), list(given)
            case "token_classification":
                return datasets.List(datasets.Value("int32")), [[ids[tag] for tag in tags] for tags in given]
            case _:
                named = datasets.ClassLabel(names=list(self._label_names))
                return named, [ids[label] for label in given if label is not None]

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
        texts = [column for column in self.columns() if column.key != "label"]
        rows = checks.with_text(files[0].name, select(raw, texts, where=files[0].name, findings=checks.findings))
        checks.findings.raise_if_any()
        kept = set(rows.places)
        indices = [index for index, place in enumerate(raw.places) if place in kept]
        return UnlabelledRows(super().to_dataset(rows), {n: [v[i] for i in indices] for n, v in raw.columns.items()})

    def model_rows(self, split: str, tokenizer: PreTrainedTokenizerBase) -> EncodedRows | MaskedRows:
        """A split as a model takes it. Masks of training follow run.seed, those of evaluation the seed of the splits.

        Raises:
            ConfigError: `dataset.max_length` is more than the tokenizer's limit, or there is no mask token.
        """
        rows = EncodedRows(self.encode(self.load()[split], tokenizer), pooling=self.config.pooling)
        if self.task != "masked_lm":
            return rows
        seeds = {"seed": self.seed, "evaluation_seed": self._split_seed}
        return MaskedRows(rows, self.config.masking, tokenizer=tokenizer, **seeds)

    def encode(self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Encodes rows of `load` or `read_unlabelled`; the same rows and tokenizer again give the same object.

        Returns:
            `input_ids`, `token_type_ids` where the model takes them, `length`, `truncated` (as `encode_texts`), and
            `labels` where the rows have a label: an id, a number, a list of them, or an id for every first sub-word.
            With `long_texts: stride` a row is a window and `document` the number of its text; for masked_lm `word_ids`.

        Raises:
            ConfigError: `dataset.max_length` is more than the tokenizer's limit.
        """
        for before, same_tokenizer, encoded in self._encoded:
            if before is rows and same_tokenizer is tokenizer:
                return encoded
        max_length = resolve_max_length(self.config.max_length, tokenizer)
        if self.task == "token_classification":
            tags = rows["label"] if "label" in rows.column_names else None
            encoded = encode_words(rows["text"], tokenizer, max_length=max_length, tags=tags)
        else:
            encoded = self._encode_texts(rows, tokenizer, max_length=max_length)
        self._report(rows, self._length_notes(rows, encoded, max_length=max_length))
        self._encoded.append((rows, tokenizer, encoded))
        return encoded

    def _encode_texts(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, *, max_length: int
    ) -> datasets.Dataset:
        words = self.task == "masked_lm"
        if self.config.long_texts == "stride":
            encoded = encode_windows(
                rows["text"], tokenizer, max_length=max_length, overlap=self.config.overlap, with_words=words
            )
            given = rows.select(encoded["document"])
        else:
            pairs = rows["text_pair"] if "text_pair" in rows.column_names else None
            encoded = encode_texts(rows["text"], tokenizer, max_length=max_length, pairs=pairs, with_words=words)
            given = rows
        if "label" not in rows.column_names:
            return encoded
        column = given.select_columns("label").with_format("arrow")[:].column("label").combine_chunks()
        return encoded.add_column("labels", column)

    def _length_notes(self, rows: datasets.Dataset, encoded: datasets.Dataset, *, max_length: int) -> list[str]:
        if self.config.long_texts == "stride" and self.task != "token_classification":
            texts = Counter(encoded["document"])
            long = sum(count > 1 for count in texts.values())
            pooled = f", one prediction a text by the {self.config.pooling} of its windows' logits"
            return [
                f"{long:,} of {len(rows):,} texts are longer than {max_length} tokens; {len(encoded):,} windows, "
                f"{self.config.overlap} tokens shared{pooled if self.task in WHOLE_TEXT_TASKS else ''}."
            ]
        cut = sum(encoded["truncated"])
        notes = [f"{cut:,} of {len(rows):,} rows are longer than {max_length} tokens and were cut."] if cut else []
        if self.task == "token_classification":
            words, texts_cut = cut_words(encoded, rows["text"])
            if words:
                notes.append(f"{words:,} words of {texts_cut:,} rows are cut off or have no token: they aren't scored.")
        return notes
