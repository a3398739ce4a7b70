"""One answer, as it comes: pieces of text for a reader who waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn
from transformers import PreTrainedTokenizerBase

from supertrainer.inference.choosing import TokenChooser, seed_of
from supertrainer.inference.ends import StopTexts, end_token_ids
from supertrainer.inference.generation import (
    Answer,
    answer_room,
    decode,
    evaluating,
    finished_answer,
    position_limit,
    require_room,
)
from supertrainer.inference.schema import GenerationConfig

_UNFINISHED = "\ufffd"  # how bytes are shown that are no character yet


class AnswerStream:
    """The pieces of an answer, each once, when iterated over; all together are its text. Leaving early keeps what came.

    The tokens are those of `generation.generate` for the same row.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        prompt: Sequence[int],
        *,
        config: GenerationConfig,
        row: int = 0,
    ) -> None:
        """
        Args:
            model: put into eval mode, and back as it was at the end.
            tokenizer: of the model.
            prompt: token ids.
            config: how tokens are chosen; one answer is made.
            row: number of the prompt, for the seed.

        Raises:
            ConfigError: the prompt is empty or leaves no room for an answer.
        """
        self._model = model
        self._prompt = prompt
        self._config = config
        self._limit = position_limit(model)
        require_room(model, [prompt], limit=self._limit)
        self._ends, self._stops = end_token_ids(model, tokenizer), StopTexts(tokenizer, config.stop)
        self._seed = seed_of(config.seed, row=row, sample=0)
        self._tokens: list[int] = []
        self._shown = ""

    def __iter__(self) -> Iterator[str]:
        room = answer_room(self._prompt, config=self._config, limit=self._limit)

        def is_done(row: int, token: int) -> bool:
            self._tokens.append(token)
            return token in self._ends or len(self._tokens) >= room or self._stops.in_tail(self._tokens)

        choose = TokenChooser(self._config, prompts=[self._prompt], seeds=[self._seed])
        with evaluating(self._model):
            for _ in decode(self._model, [self._prompt], choose=choose, is_done=is_done):
                if piece := self._grown(self._settled()):
                    yield piece
        if piece := self._grown(self.answer.text):
            yield piece

    @property
    def answer(self) -> Answer:
        """What has come so far."""
        return finished_answer(self._tokens, prompt=self._prompt, ends=self._ends, stops=self._stops)

    def _settled(self) -> str:
        """The text that no later token can change: without half a character, and without what may become a stop."""
        text = self.answer.text.rstrip(_UNFINISHED)
        return text[: len(text) - max(self._stops.open_at_end(text), default=0)]

    def _grown(self, text: str) -> str:
        if not text.startswith(self._shown):
            return ""
        piece = text[len(self._shown) :]
        self._shown = text
        return piece
