"""Where an answer ends: the model's end tokens, and texts at which the user wants it to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jinja2 import TemplateError
from torch import nn
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase

_ANSWER = "ANSWER"
_EXCHANGE = (("user", "QUESTION"), ("assistant", _ANSWER))


def unwrapped(model: nn.Module) -> PreTrainedModel:
    """The transformers model itself, inside an adapter's wrapper or not."""
    from peft import PeftModel

    inner: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    assert isinstance(inner, PreTrainedModel)
    return inner


def end_token_ids(model: nn.Module, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every token that ends an answer: all of the model's generation config, the tokenizer's end of text, and the one
    that its chat template writes after an answer.
    """
    base = unwrapped(model)
    generation = base.generation_config if isinstance(base, GenerationMixin) else None
    declared = None if generation is None else generation.eos_token_id
    ends = set(declared if isinstance(declared, list) else [declared])
    ends |= {tokenizer.eos_token_id, end_of_turn(tokenizer)}
    return frozenset(int(token) for token in ends if token is not None)


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The special token that the chat template writes right after an answer; None where there is none."""
    if tokenizer.chat_template is None:
        return None
    text = _exchange(tokenizer)
    if text is None:
        return None
    rest = text.rpartition(_ANSWER)[2].lstrip()
    added = {token: number for number, token in ((n, str(t)) for n, t in tokenizer.added_tokens_decoder.items())}
    found = max((token for token in added if rest.startswith(token)), key=len, default=None)
    return None if found is None else added[found]


def _exchange(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """A question and its answer as the template writes them; None where it leaves the answer out or refuses both forms
    of a content, a text and a list of parts.
    """
    for in_parts in (False, True):
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}
            for role, text in _EXCHANGE
        ]
        try:
            text = str(tokenizer.apply_chat_template(messages, tokenize=False))
        except (TemplateError, TypeError):  # it wants other roles than these, or the other form
            continue
        if text.count(_ANSWER) == 1 and "'type'" not in text:
            return text
    return None


class StopTexts:
    """Finds texts in an answer as it grows, also where tokens don't end at their ends."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> None:
        """
        Args:
            tokenizer: of the model.
            stop: the texts; may be none.
        """
        self._tokenizer = tokenizer
        self._stop = tuple(stop)
        # A token has at least a byte, and a character four at most: the texts lie within so many of the last tokens.
        self._tail = 4 * max(map(len, self._stop), default=0) + 8

    def in_tail(self, tokens: Sequence[int]) -> bool:
        """Whether one of the texts stands at the end of the answer, within what the last token could have added."""
        if not self._stop:
            return False
        tail = self._tokenizer.decode(
            list(tokens[-self._tail :]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return any(text in tail for text in self._stop)

    def text_of(self, tokens: Sequence[int]) -> str:
        """The answer without special tokens, up to the first of the texts."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        places = [place for stop in self._stop if (place := text.find(stop)) >= 0]
        if places:
            return text[: min(places)]
        if self.in_tail(tokens):  # the stop holds a special token: what came before it in the stop goes too
            return text[: len(text) - max(self.open_at_end(text), default=0)]
        return text

    def open_at_end(self, text: str) -> list[int]:
        """How many of the text's last characters may be the beginning of a stop, for each that begins so."""
        return [
            size
            for stop in self._stop
            for size in range(min(len(stop) - 1, len(text)), 0, -1)
            if text.endswith(stop[:size])
        ]
