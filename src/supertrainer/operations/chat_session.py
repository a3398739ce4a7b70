"""A conversation with a trained model: what was said, what still fits, and the next answer as it comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.chat.control_tokens import ControlTokens
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.generation import Answer, position_limit
from supertrainer.inference.schema import GenerationConfig

ROOM_SHARE = 4  # an answer gets a quarter of the positions at least, where it may be as long


class ChatSession:
    """Messages so far, and the next answer."""

    def __init__(self, engine: HfEngine, *, generation: GenerationConfig, system: str | None = None) -> None:
        """
        Args:
            engine: with the trained model and its template.
            generation: how answers are generated.
            system: what comes before the conversation.

        Raises:
            ConfigError: the template takes no system message.
        """
        self._engine = engine
        self._generation = generation
        self._limit = position_limit(engine.trained.model)
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages: list[dict[str, Any]] = list(self._opening)
        self._control = ControlTokens(engine.trained.tokenizer)
        self.left_out = 0  # messages that no longer fitted, at the last turn
        self._turns = 0
        try:
            self._render([*self.messages, {"role": "user", "content": "?"}])
        except DataError as error:
            raise ConfigError(
                f"the model's template takes no --system: {error.problems[0].what}", fix="leave --system out."
            ) from None

    def reset(self) -> None:
        """Forgets everything but the system message."""
        self.messages = list(self._opening)

    def control_tokens(self, text: str | None = None) -> list[str]:
        """The special tokens that a message holds, written out; None: the system message."""
        return self._control.within(self._opening if text is None else [{"role": "user", "content": text}])

    def answer(self, text: str) -> Iterator[str]:
        """The answer to the next message, piece by piece. What came until it is left is kept as the answer.

        Raises:
            DataError: the message alone leaves no room for an answer; it is forgotten.
        """
        self._turns += 1
        self.messages.append({"role": "user", "content": text})
        try:
            prompt = self._fitting()
        except DataError:
            self.messages.pop()
            raise
        stream = self._engine.stream(prompt, generation=self._generation, row=self._turns)
        try:
            yield from stream
        finally:
            self.last: Answer = stream.answer
            self.messages.append({"role": "assistant", "content": self.last.text})

    def _fitting(self) -> list[int]:
        """The prompt; the oldest messages are left out until an answer has room."""
        self.left_out = 0
        prompt = self._render(self.messages)
        if self._limit is None:
            return prompt
        room = min(self._generation.max_new_tokens, max(1, self._limit // ROOM_SHARE))
        kept, first = list(self.messages), len(self._opening)
        while len(prompt) + room > self._limit and len(kept) > first + 2:
            del kept[first : first + 2]
            prompt = self._render(kept)
        if len(prompt) >= self._limit:
            raise DataError(
                f"the message makes {len(prompt):,} tokens, and the model has {self._limit:,} positions.",
                why="no position is left for an answer.",
                fix="a shorter one.",
            )
        self.left_out = len(self.messages) - len(kept)
        self.messages = kept
        return prompt

    def _render(self, messages: list[dict[str, Any]]) -> list[int]:
        return render_prompt(messages, self._engine.trained.tokenizer)
