"""Special tokens that somebody wrote out in a message: a model reads them as such, so a text can end a turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supertrainer.data.chat.conversation import Message, text_in

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SHOWN = 5


class ControlTokens:
    """Finds the special tokens of a tokenizer in messages."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        specials = {*tokenizer.all_special_tokens}
        specials |= {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
        written = sorted((token for token in specials if token.strip()), key=len, reverse=True)
        self._specials = re.compile("|".join(map(re.escape, written)) or "(?!)")

    def within(self, messages: Iterable[Message]) -> list[str]:
        """The special tokens in what messages say, think and call, each once, in their order."""
        return list(dict.fromkeys(token for message in messages for token in self._specials.findall(_said(message))))


@dataclass
class ControlRows:
    """Rows that hold special tokens.

    Attributes:
        count: of such rows.
        shown: the first of them: number or place of the row, and its tokens.
    """

    count: int = 0
    shown: list[tuple[Any, list[str]]] = field(default_factory=list)

    def add(self, row: Any, tokens: Sequence[str]) -> None:
        """Notes a row, unless it holds none."""
        if tokens:
            self.count += 1
            if len(self.shown) < SHOWN:
                self.shown.append((row, list(tokens)))

    def lines(self) -> list[str]:
        """What is told of them; `shown` has the places of the rows."""
        if not self.count:
            return []
        named = ", ".join(f"{place} ({' '.join(tokens)})" for place, tokens in self.shown)
        more = f" and {self.count - len(self.shown):,} more" if self.count > len(self.shown) else ""
        rows = "1 row holds" if self.count == 1 else f"{self.count:,} rows hold"
        return [f"{rows} special tokens written out in a message, which are read as such: {named}{more}."]


def _said(message: Message) -> str:
    calls = message.get("tool_calls")
    more = [json.dumps(calls, ensure_ascii=False)] if calls else []
    return "\n".join([text_in(message), message.get("reasoning_content", ""), *more])
