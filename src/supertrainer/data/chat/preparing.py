"""From the conversations of a split to its table of token ids: encoded, checked, brought to the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.chat.control_tokens import ControlRows
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.encoding import IGNORED, TokenRows, encode_conversations
from supertrainer.data.chat.lengths import fit_lengths
from supertrainer.data.chat.table import to_table
from supertrainer.data.findings import Findings, Kind
from supertrainer.data.preview import marked_text
from supertrainer.data.schema import LlmDatasetConfig, MllmDatasetConfig

if TYPE_CHECKING:
    import pyarrow as pa
    from transformers import PreTrainedTokenizerBase

REFUSED = Kind(
    "rows that the chat template can't render",
    fix="mend them, another dataset.chat_template, or dataset.on_malformed_rows=drop.",
)


@dataclass(frozen=True)
class EncodingJob:
    """What the rows of one split are encoded with.

    Attributes:
        config: template, what is learnt, policies.
        tokenizer: with the template set.
        max_length: the longest row in tokens.
        split: its name, for messages.
        places: where each conversation stands, such as `train.jsonl:17`.
    """

    config: LlmDatasetConfig | MllmDatasetConfig
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    split: str
    places: Sequence[str]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that change what becomes of a row."""
        config = self.config
        return {
            "train_on": config.train_on,
            "max_length": self.max_length,
            "on_too_long": config.on_too_long,
            "on_malformed_rows": config.on_malformed_rows,
            "on_nothing_to_learn": config.on_nothing_to_learn,
        }

    def run(self, conversations: Sequence[Conversation]) -> tuple[pa.Table, dict[str, Any]]:
        """Encodes conversations.

        Returns:
            The table of `to_table`, and notes that JSON holds: `lines`, what became of rows, in plain words; `control`,
            which rows hold special tokens. `told` reads them.

        Raises:
            DataError: rows that can't be taken, by the policies of the config.
        """
        rows = self.encode(conversations)
        lines = self._refused(rows)
        rows, dropped = self._learnable(rows, why="")
        lines += dropped
        begin, end = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        fitted = {"max_length": self.max_length, "policy": self.config.on_too_long, "begin": begin, "end": end}
        rows, cut = fit_lengths(rows, **fitted, place=self._place, where=self.split)
        rows, dropped = self._learnable(rows, why=" after the cut")
        lines += cut + dropped
        if rows.straddling:
            lines.append(
                f"{rows.straddling:,} answers begin inside a token of the prompt, which isn't learnt: the template's "
                "prompt ends in white space."
            )
        if rows.rewritten:
            lines.append(
                f"{rows.rewritten:,} answers are learnt as the template rewrites them, such as without the thoughts of "
                "earlier turns; dataset.train_on=last learns none that is followed by another."
            )
        if not len(rows):
            raise DataError(
                f"{self.split} has no rows left.", why=" ".join(lines), fix="other rows, or another policy."
            )
        control = rows.controlling
        return to_table(rows), {"lines": lines, "control": {"count": control.count, "shown": control.shown}}

    def told(self, notes: Mapping[str, Any]) -> list[str]:
        """What became of rows, in plain words, with their places.

        Args:
            notes: of `run`, kept or new.
        """
        shown = [(self._place(number), tokens) for number, tokens in notes["control"]["shown"]]
        return [*notes["lines"], *ControlRows(notes["control"]["count"], shown).lines()]

    def encode(self, conversations: Sequence[Conversation]) -> TokenRows:
        """Renders and tokenizes conversations."""
        return encode_conversations(conversations, self.tokenizer, train_on=self.config.train_on)

    def tokens_of_text(self, table: pa.Table) -> int:
        """Tokens of a table that could be learnt."""
        return int(table.column("length").to_numpy().sum())

    def require_trained_share(self, table: pa.Table) -> None:
        """Checks that enough of a split's tokens are learnt.

        Raises:
            DataError: too few are; shows a row with the learnt part marked.
        """
        labels = table.column("labels").combine_chunks().flatten().to_numpy()
        share = np.count_nonzero(labels != IGNORED) / max(self.tokens_of_text(table), 1)
        if share < self.config.min_trained_share:
            ids, of_row = table.column("input_ids")[0].as_py(), table.column("labels")[0].as_py()
            raise DataError(
                f"{self.split}: {share:.2%} of the tokens are learnt, less than "
                f"dataset.min_trained_share={self.config.min_trained_share:g}.",
                why=f"so little teaches little; the first row, with what is learnt in ⟦ ⟧:\n"
                f"{marked_text(ids, of_row, self.tokenizer)}",
                fix="dataset.train_on=all, other columns or another template, or a smaller dataset.min_trained_share.",
            )

    def _place(self, number: int) -> str:
        return self.places[number]

    def _refused(self, rows: TokenRows) -> list[str]:
        """Notes conversations that the template can't take, with its own words for the first."""
        if not rows.refused:
            return []
        if self.config.on_malformed_rows == "drop":
            return [f"{len(rows.refused):,} rows that the chat template can't render were left out."]
        first = next(iter(rows.refused.values()))
        findings = Findings()
        kind = replace(REFUSED, why=f"of the first one the template says: {first}")
        for number in rows.refused:
            findings.add(kind, where=self.split, place=self._place(number))
        findings.raise_if_any()
        return []

    def _learnable(self, rows: TokenRows, *, why: str) -> tuple[TokenRows, list[str]]:
        """The rows that have a token to learn."""
        empty = [index for index, count in enumerate(rows.trained()) if not count]
        if not empty:
            return rows, []
        if self.config.on_nothing_to_learn == "error":
            self._refuse_empty(rows, empty, why=why)
        left = rows.emptied()
        columns = (rows.trained(), rows.ids, rows.labels, rows.numbers, rows.truncated, rows.fixed)
        for count, ids, labels, number, truncated, fixed in zip(*columns, strict=True):
            if count:
                left.add(ids, labels, number, truncated=truncated, fixed=fixed)
        return left, [f"{len(empty):,} rows with nothing to learn{why} were left out."]

    def _refuse_empty(self, rows: TokenRows, empty: list[int], *, why: str) -> None:
        shown = marked_text(rows.ids[empty[0]].tolist(), rows.labels[empty[0]].tolist(), self.tokenizer)
        kind = Kind(
            f"rows without a token to learn{why}",
            why=f"they would teach nothing; the first one:\n{shown}",
            fix="dataset.on_nothing_to_learn=drop, another dataset.train_on, max_length or on_too_long.",
        )
        findings = Findings()
        for index in empty:
            findings.add(kind, where=self.split, place=self._place(rows.numbers[index]))
        findings.raise_if_any()
