"""What datasets of conversations share, with pictures or without: one encoding a split, kept and cached."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from supertrainer.core.errors import DataError, Problem, raise_all
from supertrainer.data.base import TaskDataset
from supertrainer.data.chat.cache import TokenCache, cache_key
from supertrainer.data.chat.conversation import Conversation, read_conversation
from supertrainer.data.chat.preparing import EncodingJob
from supertrainer.data.chat_schema import ConversationDatasetConfig
from supertrainer.data.findings import Kind
from supertrainer.data.rows import Column

if TYPE_CHECKING:
    import datasets

ConfigT = TypeVar("ConfigT", bound=ConversationDatasetConfig)

MALFORMED = Kind(
    "rows that are no conversation of their layout",
    fix="mend them, or dataset.on_malformed_rows=drop.",
    short="malformed",
)
NO_ANSWER = Kind(
    "rows without an answer to learn",
    fix="mend them, dataset.on_nothing_to_learn=drop, or another dataset.train_on.",
)


class ConversationDataset(TaskDataset[ConfigT]):
    """Rows that a chat template writes. A task says how they are encoded."""

    def __init__(self, config: ConfigT, *, seed: int) -> None:
        super().__init__(config, seed=seed)
        self._encoded: list[tuple[datasets.Dataset, Any, datasets.Dataset]] = []

    @abstractmethod
    def job(self, rows: datasets.Dataset, tokenizer: Any, *, talks: Sequence[Conversation]) -> EncodingJob:
        """What rows are encoded with. Sets the template on the tokenizer.

        Args:
            rows: of `load`.
            tokenizer: the model's, or its processor.
            talks: the conversations of the rows.
        """

    def contents(self, rows: datasets.Dataset) -> Iterable[str]:
        """Everything of rows that changes their token ids."""
        return (text for pair in zip(rows["messages"], rows["tools"], strict=True) for text in pair)

    def columns(self) -> list[Column]:
        return [Column("messages", "messages", "text", "dataset.columns.messages")]

    def conversation(self, split: str, number: int) -> Conversation:
        """A row's messages and tools; its `prompt` and `reference` are what a generation gets and should say."""
        row = self.load()[split][number]
        return read_conversation(row["messages"], row["tools"])

    def require_encodable(self, split: str, tokenizer: Any) -> None:
        """Encodes a split; of the train rows those of every split.

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

    def encode(self, rows: datasets.Dataset, tokenizer: Any) -> datasets.Dataset:
        """Encodes rows of `load`; the same rows and tokenizer again give the same object.

        Sets `dataset.chat_template` on the tokenizer, so that it is saved with the model.

        Args:
            tokenizer: the model's, or its processor.

        Returns:
            `input_ids` and `labels` (int32 lists; the id where a token is to be learnt, else -100; not shifted),
            `length`, `truncated`, `row`, the number of the row that it comes from (rows may be left out or divided),
            and with pictures `picture_tokens`, which `length` counts too.

        Raises:
            ConfigError: `dataset.max_length` is more than the tokenizer's limit, or there is no template or processor
                that can be used.
            DataError: rows are too long, or refused by the template, or have nothing to learn.
        """
        import datasets

        for before, same_tokenizer, encoded in self._encoded:
            if before is rows and same_tokenizer is tokenizer:
                return encoded
        talks = [read_conversation(*texts) for texts in zip(rows["messages"], rows["tools"], strict=True)]
        job = self.job(rows, tokenizer, talks=talks)
        cache = TokenCache.of(self.config.cache)
        if cache is None:
            table, notes = job.run(talks)
        else:
            key = cache_key(self.contents(rows), job.tokenizer, settings=job.settings)
            found = cache.read(key)
            table, notes = found or job.run(talks)
            if found is None:
                cache.write(key, table, notes)
        job.require_trained_share(table)
        self._report(rows, job.told(notes))
        encoded = datasets.Dataset(table)
        self._encoded.append((rows, tokenizer, encoded))
        return encoded
