"""Conversations, prompts with completions, and raw texts, for a causal language model."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError
from supertrainer.data.chat import layouts
from supertrainer.data.chat.conversation import Conversation, read_conversation
from supertrainer.data.chat.encoding import trained_answers
from supertrainer.data.chat.preparing import EncodingJob
from supertrainer.data.chat.template import apply_template_choice
from supertrainer.data.chat.template_arguments import TemplateArguments
from supertrainer.data.collation import EncodedRows
from supertrainer.data.conversations import MALFORMED, NO_ANSWER, ConversationDataset
from supertrainer.data.findings import Findings
from supertrainer.data.preview import TextView, text_views
from supertrainer.data.rows import Rows
from supertrainer.data.schema import LlmDatasetConfig
from supertrainer.data.tables import RawRows
from supertrainer.data.tokenization import resolve_max_length
from supertrainer.data.validation import RowChecks

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)


class LlmDataset(ConversationDataset[LlmDatasetConfig]):
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

    def model_rows(self, split: str, tokenizer: PreTrainedTokenizerBase) -> EncodedRows:
        """A split as a model takes it. The train rows are given only if the rows of every split can be.

        Raises:
            ConfigError, DataError: as `encode`, for all splits at once.
        """
        self.require_encodable(split, tokenizer)
        return EncodedRows(self.encode(self.load()[split], tokenizer))

    def views(self, split: str, count: int, tokenizer: PreTrainedTokenizerBase) -> list[TextView]:
        """The first rows of a split as text, with what is learnt of it."""
        rows, source = self.model_rows(split, tokenizer), self.load()[split]
        numbers = list(range(min(count, len(rows))))
        places = self._places(self.encode(source, tokenizer), source, numbers)
        return text_views(rows, numbers, tokenizer=tokenizer, places=places)

    def job(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, *, talks: Sequence[Conversation]
    ) -> EncodingJob:
        config, arguments = self.config, TemplateArguments.of(self.config)
        chosen = config.chat_template is not None or arguments != TemplateArguments()
        if chosen or any(not talk.is_text for talk in talks):
            apply_template_choice(tokenizer, config.chat_template, arguments=arguments)
        return EncodingJob(
            config=self.config,
            tokenizer=tokenizer,
            max_length=resolve_max_length(self.config.max_length, tokenizer),
            split=self._split_of(rows) or "rows",
            places=rows["source_row"],
        )
