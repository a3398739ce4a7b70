"""Conversations, prompts with completions, and raw texts, for a causal language model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError, DataError, Problem, raise_all
from supertrainer.data.base import TaskDataset
from supertrainer.data.chat import layouts
from supertrainer.data.chat.cache import TokenCache, cache_key
from supertrainer.data.chat.conversation import Conversation, read_conversation
from supertrainer.data.chat.encoding import trained_answers
from supertrainer.data.chat.preparing import EncodingJob
from supertrainer.data.chat.template import apply_template_choice
from supertrainer.data.collation import EncodedRows
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.preview import TextView, text_views
from supertrainer.data.rows import Column, Rows
from supertrainer.data.schema import LlmDatasetConfig
from supertrainer.data.tables import RawRows
from supertrainer.data.tokenization import resolve_max_length
from supertrainer.data.validation import RowChecks

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

MALFORMED = Kind(
    "rows that are no conversation of their layout",
    fix="mend them, or dataset.on_malformed_rows=drop.",
    short="malformed",
)
NO_ANSWER = Kind(
    "rows without an answer to learn",
    fix="mend them, dataset.on_nothing_to_learn=drop, or another dataset.train_on.",
)


class LlmDataset(TaskDataset[LlmDatasetConfig]):
    """Rows for a causal language model.

    Args:
        config: source, splits, layout, template, what is learnt, and policies.
        seed: the run's seed, for made splits and limits where the config has no `split_seed`.
        label_names: there are none.
        task: the head that the rows are for.

    Raises:
        ConfigError: the model has another head.
    """

    def __init__(
        self,
        config: LlmDatasetConfig,
        *,
        seed: int,
        label_names: Sequence[str] | None = None,
        task: Task = "causal_lm",
    ) -> None:
        super().__init__(config, seed=seed)
        if task != "causal_lm":
            raise ConfigError(
                f"the dataset holds conversations or texts for causal_lm, and the model is for {task}.",
                fix="a model of the group model=llm/…, or a dataset of dataset=bert/….",
            )
        self.task: Task = task
        self._encoded: list[tuple[datasets.Dataset, PreTrainedTokenizerBase, datasets.Dataset]] = []

    def columns(self) -> list[Column]:
        return [Column("messages", "messages", "text", "dataset.columns.messages")]

    @property
    def wanted_columns(self) -> list[str]:
        return layouts.wanted(self.config.columns)

    def to_rows(self, raw: RawRows, *, where: str, findings: Findings) -> Rows:
        config = self.config
        return layouts.to_rows(raw, layout=config.layout, columns=config.columns, where=where, findings=findings)

    def check(self, splits: Mapping[str, Rows], checks: RowChecks) -> dict[str, Rows]:
        """Leaves out, or notes, the rows that are no conversations, and those without anything to learn."""
        return {split: self._with_answers(split, rows, checks) for split, rows in splits.items()}

    def _with_answers(self, split: str, rows: Rows, checks: RowChecks) -> Rows:
        faults = rows.columns["fault"]
        malformed = {index: fault for index, fault in enumerate(faults) if fault}
        silent = {}
        for index, text in enumerate(rows.columns["messages"]):
            if index not in malformed:
                conversation = read_conversation(text)
                if not conversation.is_text and self.config.train_on != "all":
                    silent.update({} if trained_answers(conversation, self.config.train_on) else {index: ""})
        checks.treat(split, rows, malformed, kind=MALFORMED, policy=self.config.on_malformed_rows)
        checks.treat(split, rows, silent, kind=NO_ANSWER, policy=self.config.on_nothing_to_learn)
        kept = rows.without(malformed.keys() | silent.keys())
        return Rows({key: kept.columns[key] for key in ("messages", "tools")}, kept.places)

    def to_dataset(self, rows: Rows) -> datasets.Dataset:
        """`messages` and `tools` as JSON texts (`read_conversation` reads them), `source_row`."""
        import datasets

        text = datasets.Value("string")
        columns = {**rows.columns, "source_row": rows.places}
        return datasets.Dataset.from_dict(columns, features=datasets.Features(dict.fromkeys(columns, text)))

    def conversation(self, split: str, number: int) -> Conversation:
        """A row's messages and tools; its `prompt` and `reference` are what a generation gets and should say."""
        row = self.load()[split][number]
        return read_conversation(row["messages"], row["tools"])

    def model_rows(self, split: str, tokenizer: PreTrainedTokenizerBase) -> EncodedRows:
        """A split as a model takes it. The train rows are given only if the rows of every split can be.

        Raises:
            ConfigError, DataError: as `encode`, for all splits at once.
        """
        problems: list[Problem] = []
        for name in self.load() if split == "train" else (split,):
            try:
                self.encode(self.load()[name], tokenizer)
            except DataError as error:
                problems += error.problems
        raise_all(DataError, problems)
        return EncodedRows(self.encode(self.load()[split], tokenizer))

    def views(self, split: str, count: int, tokenizer: PreTrainedTokenizerBase) -> list[TextView]:
        """The first rows of a split as text, with what is learnt of it."""
        rows, source = self.model_rows(split, tokenizer), self.load()[split]
        numbers = list(range(min(count, len(rows))))
        places = self._places(self.encode(source, tokenizer), source, numbers)
        return text_views(rows, numbers, tokenizer=tokenizer, places=places)

    def encode(self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase) -> datasets.Dataset:
        """Encodes rows of `load`; the same rows and tokenizer again give the same object.

        Sets `dataset.chat_template` on the tokenizer, so that it is saved with the model.

        Returns:
            `input_ids` and `labels` (int32 lists; the id where a token is to be learnt, else -100; not shifted),
            `length`, `truncated`, and `row`, the number of the row that it comes from: rows may be left out or divided.

        Raises:
            ConfigError: `dataset.max_length` is more than the tokenizer's limit, or it has no template.
            DataError: rows are too long, or refused by the template, or have nothing to learn.
        """
        import datasets

        for before, same_tokenizer, encoded in self._encoded:
            if before is rows and same_tokenizer is tokenizer:
                return encoded
        talks = [read_conversation(*texts) for texts in zip(rows["messages"], rows["tools"], strict=True)]
        if self.config.chat_template is not None or any(not talk.is_text for talk in talks):
            apply_template_choice(tokenizer, self.config.chat_template)
        job = EncodingJob(
            config=self.config,
            tokenizer=tokenizer,
            max_length=resolve_max_length(self.config.max_length, tokenizer),
            split=self._split_of(rows) or "rows",
            places=rows["source_row"],
        )
        cache = TokenCache.of(self.config.cache)
        if cache is None:
            table, notes = job.run(talks)
        else:
            texts = (text for pair in zip(rows["messages"], rows["tools"], strict=True) for text in pair)
            key = cache_key(texts, tokenizer, settings=job.settings)
            found = cache.read(key)
            table, notes = found or job.run(talks)
            if found is None:
                cache.write(key, table, notes)
        job.require_trained_share(table)
        self._report(rows, notes["lines"])
        encoded = datasets.Dataset(table)
        self._encoded.append((rows, tokenizer, encoded))
        return encoded
