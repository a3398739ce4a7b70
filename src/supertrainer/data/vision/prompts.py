"""What a generation gets of conversations with pictures, and such conversations in the columns of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from supertrainer.data.chat.asking import require_question
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.prepare.record import text_of
from supertrainer.data.vision.layouts import Talk, of_row, placed, split_marks, talk_of
from supertrainer.data.vision.pictures import PictureReader
from supertrainer.data.vision.processing import PictureProcessor, Size
from supertrainer.data.vision.rows import PICTURES, PictureSource, picture_batch, question_of

Prompt = Mapping[str, Any]
"""`input_ids` (T,), ending where the answer begins; `pictures`, `place`, `question`, as `picture_batch` reads them."""

GREY = (127, 127, 127)


@dataclass(frozen=True)
class PicturePrompts:
    """Prompts with none, one or several pictures each.

    Attributes:
        prompts: as `picture_prompt` makes them.
        store: finds their pictures.
        processor: of the model.
        pad_token_id: of its tokenizer.
    """

    prompts: Sequence[Prompt]
    store: PictureSource
    processor: PictureProcessor
    pad_token_id: int

    @property
    def ids(self) -> list[list[int]]:
        """The tokens of each."""
        return [prompt["input_ids"].tolist() for prompt in self.prompts]

    def batch(self, numbers: Sequence[int]) -> dict[str, torch.Tensor]:
        """What a model reads of these prompts, padded on the left, of an encoder on the right; see `picture_batch`."""
        return picture_batch(
            [self.prompts[number] for number in numbers],
            store=self.store,
            processor=self.processor,
            pad_token_id=self.pad_token_id,
            padding_side="left",
        )

    def sizes(self, number: int) -> list[Size]:
        """Width and height of a prompt's pictures."""
        return [self.store.size(reference) for reference in self.prompts[number][PICTURES]]

    def some(self, numbers: Sequence[int]) -> PicturePrompts:
        """These prompts alone."""
        return replace(self, prompts=[self.prompts[number] for number in numbers])

    def blank(self) -> PicturePrompts:
        """The same prompts with a plain grey picture of the same size in place of every picture."""
        return replace(self, store=BlankPictures(self.store))


class BlankPictures:
    """Grey pictures in place of those of a store, of their sizes."""

    def __init__(self, store: PictureSource) -> None:
        self._store = store

    def image(self, reference: str) -> Image.Image:
        """A plain picture of the size of the one that the reference stands for."""
        return Image.new("RGB", self.size(reference), GREY)

    def size(self, reference: str) -> Size:
        """As that of the picture."""
        return self._store.size(reference)

    def describe(self, reference: str) -> str:
        """The file of the picture that isn't shown."""
        return self._store.describe(reference)


def picture_prompt(
    conversation: Conversation,
    *,
    pictures: Sequence[str],
    sizes: Sequence[Size],
    place: str,
    processor: PictureProcessor,
) -> dict[str, Any]:
    """What a generation gets of a conversation: all that comes before its last answer.

    Args:
        pictures: references, in the order of their places in the messages.
        sizes: width and height of each.
        place: where the row stands, for messages.
        processor: of the model.

    Raises:
        DataError: the template refuses the messages.
    """
    shaped = processor.shaped(Conversation(conversation.prompt or conversation.messages, conversation.tools))
    ids = render_prompt(
        shaped.messages,
        processor.tokenizer,
        tools=shaped.tools,
        change=lambda text: processor.expand(text, sizes)[0],
        adds_begin=not processor.family.begins_behind_pictures,
    )
    return {
        "input_ids": np.asarray(ids, dtype=np.int32),
        PICTURES: list(pictures),
        "place": place,
        "question": question_of(conversation, prefix=processor.question_prefix),
    }


def asked_in_row(
    row: Mapping[str, Any],
    reader: PictureReader,
    *,
    text: str,
    is_conversation: bool,
    images: Sequence[str],
    system: str | None = None,
    tools: Any = None,
    from_arrow: bool = False,
) -> tuple[Conversation, list[str]]:
    """What a row asks, and the references of its pictures.

    Args:
        row: name of a column -> its value.
        reader: finds pictures.
        text: the column of the question, or of the conversation.
        is_conversation: whether that holds messages. Where nothing says where pictures stand, they come first.
        images: the columns of pictures, whose cells may be empty.
        system: what comes before the conversation, where that says nothing itself.
        tools: descriptions of those that may be called.
        from_arrow: nested values come from Arrow, whose objects have null fields.

    Raises:
        RowFault: with the column.
    """
    if is_conversation:
        talk = talk_of(row, reader, name=text, from_arrow=from_arrow)
    else:
        talk = Talk([{"role": "user", "content": split_marks(text_of(row.get(text), text))}], text)
    given = [reference for name in images for reference in reader.of_column(row.get(name), name, 0)]
    field = " and ".join(images) or text
    pictures = of_row(talk, given, field=field)
    told = {"system": system, "tools": tools}
    found = placed(talk, told, pictures, field=field, first=True, from_arrow=from_arrow)
    require_question(found, text)
    return found, pictures
