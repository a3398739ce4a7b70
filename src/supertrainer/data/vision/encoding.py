"""Conversations with pictures -> token ids, labels, and which tokens are of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.encoding import Encoder, TokenRows, encode_conversations
from supertrainer.data.chat.preparing import EncodingJob
from supertrainer.data.chat.rendering import CannotRender, Span
from supertrainer.data.chat.spans import AnswerFinder
from supertrainer.data.schema import TrainOn
from supertrainer.data.vision.encoder_decoder import require_one_answer
from supertrainer.data.vision.processing import PictureProcessor, Size

if TYPE_CHECKING:
    import pyarrow as pa


class PictureEncoder(Encoder):
    """Renders a conversation with the processor's template, and puts the tokens of pictures where they stand.

    Args:
        pictures: the processor.
        sizes: of the pictures of each conversation, by its number.
        train_on: what is learnt; of pictures nothing.
    """

    def __init__(self, pictures: PictureProcessor, sizes: Sequence[Sequence[Size]], *, train_on: TrainOn) -> None:
        super().__init__(pictures.tokenizer, train_on)
        self._pictures = pictures
        self._sizes = sizes
        self._places: dict[int, list[tuple[int, int, int]]] = {}
        tokenizer = pictures.tokenizer
        around = {tokenizer.eos_token_id}
        if pictures.family.begins_behind_pictures:
            self._begin = None
        else:
            around.add(tokenizer.bos_token_id)
        added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._frames = np.array(sorted(added - around), dtype=np.int64)

    def finder(self) -> AnswerFinder:
        return AnswerFinder(
            self._pictures.tokenizer, shape=lambda message: self._pictures.shaped(Conversation((message,))).messages[0]
        )

    def rendered(self, number: int, conversation: Conversation) -> tuple[str, list[Span] | None]:
        text, spans = self.unexpanded(number, conversation)
        written, places = self._pictures.expand(text, self._sizes[number])
        self._places[number] = places
        if spans is None or not places:
            return written, spans
        return written, [(self._moved(start, places), self._moved(end, places)) for start, end in spans]

    def unexpanded(self, number: int, conversation: Conversation) -> tuple[str, list[Span] | None]:
        """As `rendered`, with a placeholder where each picture stands."""
        return super().rendered(number, self._pictures.shaped(conversation))

    def fixed(self, number: int, ids: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
        """The tokens of pictures, and the special ones on either side: what a template frames a picture with."""
        mask = np.zeros(len(ids), dtype=bool)
        for _, start, end in self._places.pop(number, []):
            inside = (offsets[:, 0] < end) & (offsets[:, 1] > start)
            first, last = int(inside.argmax()), len(inside) - int(inside[::-1].argmax())
            mask[first:last] = True
            for neighbour in (first - 1, last):
                if 0 <= neighbour < len(ids) and ids[neighbour] in self._frames:
                    mask[neighbour] = True
        return mask

    def _moved(self, place: int, places: Sequence[tuple[int, int, int]]) -> int:
        width = len(self._pictures.placeholder)
        return place + sum(end - start - width for before, start, end in places if before < place)


@dataclass(frozen=True)
class PictureJob(EncodingJob):
    """Encodes the rows of one split.

    Attributes:
        pictures: the processor.
        sizes: of the pictures of each conversation.
    """

    pictures: PictureProcessor
    sizes: Sequence[Sequence[Size]]

    @property
    def settings(self) -> dict[str, Any]:
        return super().settings | self.pictures.settings()

    def encode(self, conversations: Sequence[Conversation]) -> TokenRows:
        train_on = self.config.train_on
        if self.pictures.family.is_prefix and train_on == "all":
            raise ConfigError(
                "dataset.train_on=all with a model that reads its prompt in both directions.",
                why="it would see the tokens that it has to tell.",
                fix="dataset.train_on=assistant.",
            )
        if self.pictures.family.is_encoder_decoder:
            require_one_answer(conversations, train_on=train_on, places=self.places)
        encoder = PictureEncoder(self.pictures, self.sizes, train_on=train_on)
        rows = encode_conversations(conversations, self.tokenizer, train_on=train_on, encoder=encoder)
        if not self.pictures.family.begins_behind_pictures:  # these write another text themselves
            self._compare(conversations)
        return rows

    def tokens_of_text(self, table: pa.Table) -> int:
        pictures = table.column("picture_tokens").to_numpy() if "picture_tokens" in table.column_names else np.zeros(1)
        return super().tokens_of_text(table) - int(pictures.sum())

    def _compare(self, conversations: Sequence[Conversation]) -> None:
        """Checks that the processor itself gives the same ids for the first row that has pictures.

        Raises:
            ConfigError: it gives others.
        """
        number = next((number for number, sizes in enumerate(self.sizes) if sizes), None)
        if number is None:
            return
        encoder = PictureEncoder(self.pictures, self.sizes, train_on="all")
        try:
            text = encoder.rendered(number, conversations[number])[0]
            plain, _ = encoder.unexpanded(number, conversations[number])
        except CannotRender:
            return  # told with the rows
        ours = self.pictures.stripped(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        theirs = self.pictures.written_by_processor(plain, self.sizes[number])
        if ours != theirs:
            first = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
            around = slice(max(first - 3, 0), first + 4)
            raise ConfigError(
                f"{type(self.pictures.processor).__name__} writes other tokens than were made for "
                f"{self.places[number]}, from token {first} on: {theirs[around]}, not {ours[around]}.",
                why="the model would be trained on other prompts than it is asked later.",
                fix="another model, or another dataset.chat_template.",
            )
