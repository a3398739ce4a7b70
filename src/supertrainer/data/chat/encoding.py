"""Conversations -> token ids and labels. A text is tokenized once, as a whole, so its ids are those of inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.data.chat.control_tokens import ControlRows, ControlTokens
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.rendering import CannotRender, Span, changed_messages, own_begin, surplus_begins
from supertrainer.data.chat.spans import AnswerFinder
from supertrainer.data.schema import TrainOn
from supertrainer.data.tokenization import BATCH, require_fast

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
_LEADING_WHITE = ("Ġ", "Ċ", "ĉ", "č", "▁")  # how vocabularies write a token that begins with white space


@dataclass
class TokenRows:
    """Token ids of conversations, in their order.

    Attributes:
        ids: of every row, (T,) int32.
        labels: the id where a token is to be learnt, else -100, (T,) int32; not shifted.
        numbers: which of the conversations a row is of.
        truncated: rows that were cut.
        refused: number of a conversation -> why the template can't take it.
        straddling: answers whose first token begins in the prompt.
        controlling: conversations whose messages hold a special token, written out, by number.
        rewritten: answers that are learnt otherwise than they stand in the row, as the template writes them.
        fixed: of every row, which tokens belong to pictures: they are never learnt nor cut, (T,) bool; None without.
    """

    ids: list[np.ndarray] = field(default_factory=list)
    labels: list[np.ndarray] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    truncated: list[bool] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)
    straddling: int = 0
    rewritten: int = 0
    controlling: ControlRows = field(default_factory=ControlRows)
    fixed: list[np.ndarray | None] = field(default_factory=list)

    def add(
        self,
        ids: np.ndarray,
        labels: np.ndarray,
        number: int,
        *,
        truncated: bool = False,
        fixed: np.ndarray | None = None,
    ) -> None:
        """Adds a row."""
        self.ids.append(ids)
        self.labels.append(labels)
        self.numbers.append(number)
        self.truncated.append(truncated)
        self.fixed.append(fixed)

    def emptied(self) -> TokenRows:
        """The same notes with no rows."""
        return replace(self, ids=[], labels=[], numbers=[], truncated=[], fixed=[])

    def __len__(self) -> int:
        return len(self.ids)

    def trained(self) -> list[int]:
        """How many tokens of each row are to be learnt; the first one is predicted from nothing and never counts."""
        return [int(np.count_nonzero(labels[1:] != IGNORED)) for labels in self.labels]


def encode_conversations(
    conversations: Sequence[Conversation],
    tokenizer: PreTrainedTokenizerBase,
    *,
    train_on: TrainOn,
    encoder: Encoder | None = None,
) -> TokenRows:
    """Renders and tokenizes conversations and raw texts.

    A token belongs to an answer if its first character does, white space that a byte-level token begins with counting
    as such: a token that begins in the prompt and goes on into the answer is not learnt. Of a raw text every token is
    learnt, and the token that ends a text is put behind it. There is one token that begins a text where the tokenizer
    puts one; one that the template wrote already isn't doubled.

    Args:
        encoder: of rows that are more than text.

    Raises:
        ConfigError: the tokenizer has no template or is one written in Python.
    """
    require_fast(tokenizer)
    encoder = encoder or Encoder(tokenizer, train_on)
    rows = TokenRows()
    for start in range(0, len(conversations), BATCH):
        encoder.add(conversations[start : start + BATCH], start, rows)
    return rows


class Encoder:
    """Renders and tokenizes conversations, batch by batch."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, train_on: TrainOn) -> None:
        self._tokenizer = tokenizer
        self._train_on = train_on
        self._made_finder: AnswerFinder | None = None
        self._begin = own_begin(tokenizer)
        self._end: int | None = tokenizer.eos_token_id
        self._control = ControlTokens(tokenizer)
        vocabulary = tokenizer.get_vocab()
        self._leading_white = np.zeros(max(vocabulary.values(), default=0) + 1, dtype=bool)
        for token, number in vocabulary.items():
            self._leading_white[number] = token.startswith(_LEADING_WHITE)

    def add(self, conversations: Sequence[Conversation], first: int, rows: TokenRows) -> None:
        """Encodes a batch; `first` is the number of its first conversation."""
        texts: list[str] = []
        spans: list[list[Span] | None] = []  # None: every token is learnt
        numbers: list[int] = []
        for number, conversation in enumerate(conversations, start=first):
            try:
                text, found = self.rendered(number, conversation)
                if not conversation.is_text:
                    rows.controlling.add(number, self._control.within(conversation.messages))
                    rows.rewritten += self._count_rewritten(conversation, text)
            except CannotRender as error:
                rows.refused[number] = str(error)
                continue
            texts.append(text)
            spans.append(found)
            numbers.append(number)
        if not texts:
            return
        encoded = self._tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        for place, number in enumerate(numbers):
            ids = np.asarray(encoded["input_ids"][place], dtype=np.int32)
            found = spans[place]
            labels = ids.copy()
            offsets = np.asarray(encoded["offset_mapping"][place], dtype=np.int64).reshape(-1, 2)
            if found is not None:
                labels, straddling = self._labels(ids, offsets, found)
                rows.straddling += straddling
            fixed = self.fixed(number, ids, offsets)
            if fixed is not None:
                labels[fixed] = IGNORED
            is_text = conversations[number - first].is_text
            ids, labels, fixed = self._framed(ids, labels, fixed, is_text=is_text)
            rows.add(ids, labels, number, fixed=fixed)

    def _count_rewritten(self, conversation: Conversation, text: str) -> int:
        wanted = trained_answers(conversation, "assistant" if self._train_on == "all" else self._train_on)
        changed = changed_messages(conversation.messages, text)
        unthought = (number for number in wanted if number not in changed)
        thoughts = (conversation.messages[number].get("reasoning_content", "") for number in unthought)
        return sum(number in changed for number in wanted) + sum(thought.strip() not in text for thought in thoughts)

    def rendered(self, number: int, conversation: Conversation) -> tuple[str, list[Span] | None]:
        """The text of a conversation, and which spans of it are learnt; None for all of it."""
        if conversation.is_text:
            return conversation.messages[0]["content"], None
        wanted = () if self._train_on == "all" else trained_answers(conversation, self._train_on)
        text, found = self._finder.find(conversation, wanted)
        spans = None if self._train_on == "all" else found
        ends = self._finder.ends_turns or conversation.messages[-1]["role"] != "assistant"
        return (text, spans) if ends else self._ended(text, spans)

    def _ended(self, text: str, spans: list[Span] | None) -> tuple[str, list[Span] | None]:
        """Behind a last answer that the template lets run on, the token that ends a text: the model learns to stop."""
        end, bare = self._tokenizer.eos_token or "", text.rstrip()
        learnt = bool(spans) and spans is not None and spans[-1][1] >= len(bare)
        text = bare if end and bare.endswith(end) else bare + end
        if spans is None or not learnt:
            return text, spans
        return text, [*spans[:-1], (spans[-1][0], len(text))]

    def fixed(self, number: int, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
        """Which tokens of the text that `rendered` gave are never learnt nor cut, (T,) bool; None for none."""
        return None

    def finder(self) -> AnswerFinder:
        """Finds answers by the tokenizer's template."""
        return AnswerFinder(self._tokenizer)

    @property
    def _finder(self) -> AnswerFinder:
        if self._made_finder is None:
            self._made_finder = self.finder()
        return self._made_finder

    def _labels(self, ids: np.ndarray, offsets: np.ndarray, spans: Sequence[Span]) -> tuple[np.ndarray, int]:
        """Labels of a text's tokens, and how many spans begin inside a token."""
        labels = np.full_like(ids, IGNORED)
        if not len(ids):
            return labels, 0
        starts, ends = offsets[:, 0], offsets[:, 1]
        before = np.concatenate([[0], ends[:-1]])
        # Offsets of byte-level tokens leave out the white space that they begin with.
        starts = np.where(self._leading_white[ids] & (before < starts), before, starts)
        straddling = 0
        for start, end in spans:
            low, high = np.searchsorted(starts, (start, end), side="left")
            labels[low:high] = ids[low:high]
            straddling += bool(low > 0 and ends[low - 1] > start)
        return labels, straddling

    def _framed(
        self, ids: np.ndarray, labels: np.ndarray, fixed: np.ndarray | None, *, is_text: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """One token that begins a text; and the one that ends it, behind a raw text."""
        length = len(ids)
        if self._begin is not None and (not len(ids) or ids[0] != self._begin):
            learnt = self._begin if is_text or self._train_on == "all" else IGNORED
            ids, labels = _joined([self._begin], ids), _joined([learnt], labels)
        surplus = surplus_begins(ids[:8].tolist(), self._tokenizer)
        ids, labels = ids[surplus:], labels[surplus:]
        if fixed is not None:
            fixed = np.concatenate(
                [np.zeros(max(len(ids) - length, 0), dtype=bool), fixed[max(length - len(ids), 0) :]]
            )
        if is_text and self._end is not None and (not len(ids) or ids[-1] != self._end):
            ids, labels = _joined(ids, [self._end]), _joined(labels, [self._end])
        return ids, labels, fixed


def trained_answers(conversation: Conversation, train_on: TrainOn) -> list[int]:
    """The numbers of the messages that are learnt."""
    answers = conversation.answers
    marks: dict[int, Any] = {number: conversation.messages[number].get("train") for number in answers}
    if train_on == "marked":
        return [number for number in answers if marks[number]]
    wanted = answers[-1:] if train_on == "last" else answers
    return [number for number in wanted if marks[number] is not False]


def _joined(*parts: Any) -> np.ndarray:
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])
