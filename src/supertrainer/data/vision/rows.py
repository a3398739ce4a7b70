"""Rows with pictures as a model takes them. Only references are held: pictures are decoded when a batch is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch

from supertrainer.core.errors import DataError
from supertrainer.data.batching import GHOST
from supertrainer.data.chat.conversation import Conversation, read_conversation, text_in
from supertrainer.data.chat.rendering import CannotRender
from supertrainer.data.collation import IGNORED, EncodedRows, collate
from supertrainer.data.images import PictureFault
from supertrainer.data.vision.encoder_decoder import divided_batch
from supertrainer.data.vision.pictures import PictureStore
from supertrainer.data.vision.processing import PictureProcessor, Size

if TYPE_CHECKING:
    import datasets
    from PIL import Image

PICTURES = "pictures"  # of a feature: references to its pictures


class PictureSource(Protocol):
    """What finds pictures: a `PictureStore`, or what shows others in their place."""

    def image(self, reference: str) -> Image.Image:
        """The pixels, RGB."""

    def size(self, reference: str) -> Size:
        """Width and height."""

    def describe(self, reference: str) -> str:
        """The file; empty where it is none."""


class PictureRows(EncodedRows):
    """Rows of `MllmDataset.encode` with their pictures, as a map-style torch dataset.

    Args:
        encoded: token ids and labels.
        source: the rows that they were made of.
        store: finds pictures.
        processor: makes numbers of them.
    """

    def __init__(
        self, encoded: datasets.Dataset, source: datasets.Dataset, *, store: PictureStore, processor: PictureProcessor
    ) -> None:
        super().__init__(encoded)
        origins = encoded[:]["row"]
        columns = source.select_columns([PICTURES, "source_row"])[:]  # at once: one by one is a hundred times slower
        references, places = columns[PICTURES], columns["source_row"]
        self._references: list[list[str]] = [references[origin] for origin in origins]
        self._places = [places[origin] for origin in origins]
        self._questions: list[str] | None = None
        if processor.family.is_asked:
            texts = source.select_columns(["messages"])[:]["messages"]
            prefix = processor.question_prefix
            self._questions = [question_of(read_conversation(texts[origin]), prefix=prefix) for origin in origins]
        self._store = store
        self._processor = processor

    def __getitem__(self, index: int) -> dict[str, Any]:
        """One row: `input_ids` and `labels` (T,) as views, `pictures`, its references, `place`, and `question` where
        the processor reads it.
        """
        row = self._shortest if index == GHOST else index
        asked = {} if self._questions is None else {"question": self._questions[row]}
        return {**super().__getitem__(index), PICTURES: self._references[row], "place": self._places[row], **asked}

    def collate(
        self,
        features: Sequence[Mapping[str, Any]],
        *,
        pad_token_id: int,
        pad_to_multiple_of: int | None = None,
        padding_side: Literal["left", "right"] = "right",
    ) -> dict[str, torch.Tensor]:
        """A batch of rows with one, several or no pictures; see `picture_batch`."""
        return picture_batch(
            features,
            store=self._store,
            processor=self._processor,
            pad_token_id=pad_token_id,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
        )


def question_of(conversation: Conversation, *, prefix: str = "") -> str:
    """What is asked first, behind what the template writes before every question."""
    asked = next((text_in(message) for message in conversation.messages if message["role"] == "user"), "")
    return prefix + asked if asked else ""


def picture_batch(
    features: Sequence[Mapping[str, Any]],
    *,
    store: PictureSource,
    processor: PictureProcessor,
    pad_token_id: int,
    pad_to_multiple_of: int | None = None,
    padding_side: Literal["left", "right"] = "right",
) -> dict[str, torch.Tensor]:
    """Pads rows to the longest of them, and decodes their pictures.

    Args:
        features: rows of `PictureRows`, or prompts: `input_ids` and `pictures`, without `labels`.
        store: finds the pictures.
        processor: makes numbers of them.
        pad_token_id: fills `input_ids`.
        pad_to_multiple_of: rounds the width up.
        padding_side: left for a generation, which goes on at the right end; an encoder is padded on the right.

    Returns:
        Of an encoder-decoder see `divided_batch`, and the numbers of the pictures.
        `input_ids`, `attention_mask`, (B, T) int64; `labels` where rows have them, (B, T), -100 on padding and
        pictures; `token_type_ids` and `mm_token_type_ids` where the processor writes them, (B, T); if a row has a
        picture `pixel_values` and what else the family has (`pixel_attention_mask`, `image_grid_thw`, `image_sizes`),
        which hold the pictures of all rows in their order; if none has one, a plain picture for models that can't be
        called without.

    Raises:
        DataError: a picture is broken, or the processor writes another number of tokens for it than the row has.
    """
    how: dict[str, Any] = {"pad_token_id": pad_token_id, "pad_to_multiple_of": pad_to_multiple_of}
    if processor.family.is_encoder_decoder:
        divided = divided_batch(features, tokenizer=processor.tokenizer, **how)
        return divided | _numbers(features, store=store, processor=processor)
    batch = collate(features, **how)
    ids = batch["input_ids"]
    real = batch["attention_mask"].bool()
    if processor.family.is_prefix:  # the prompt is read in both directions, what begins with the first label isn't
        suffix = (batch["labels"] != IGNORED).cummax(1).values if "labels" in batch else torch.zeros_like(real)
        batch["token_type_ids"] = (suffix & real).long()
    for name, types in processor.types.items():
        batch[name] = torch.zeros_like(ids)
        for token, kind in types.items():
            batch[name][(ids == token) & real] = kind
    numbers = _numbers(features, store=store, processor=processor)
    if padding_side == "left":
        shifts = (ids.shape[1] - real.sum(1)).tolist()
        batch = {
            name: torch.stack([row.roll(shift) for row, shift in zip(values, shifts, strict=True)])
            for name, values in batch.items()
        }
    return batch | numbers


def _numbers(
    features: Sequence[Mapping[str, Any]], *, store: PictureSource, processor: PictureProcessor
) -> dict[str, torch.Tensor]:
    """What the model gets of the pictures of a batch."""
    with_pictures = [feature for feature in features if len(feature[PICTURES])]
    if not with_pictures:
        return processor.numbers_of_none()
    rows = []
    for feature in with_pictures:
        pictures = []
        for reference in feature[PICTURES]:
            try:
                pictures.append(store.image(reference))
            except PictureFault as error:
                raise DataError(
                    f"{feature.get('place', 'a row')}: the picture {store.describe(reference)} {error}.",
                    fix="mend it, or dataset.decode_check=null dataset.on_broken_pictures=drop.",
                ) from None
        rows.append(pictures)
    try:
        questions = [feature.get("question", "") for feature in with_pictures]
        numbers, counts = processor.numbers(rows, questions=questions)
    except CannotRender as error:
        places = ", ".join(str(feature.get("place", "a row")) for feature in with_pictures)
        raise DataError(f"pictures of {places}: {error}.", fix="leave the rows out, or mend the pictures.") from None
    for feature, count in zip(with_pictures, counts, strict=True):
        held = int(np.count_nonzero(np.asarray(feature["input_ids"]) == processor.picture_token))
        if held != count:
            raise DataError(
                f"{feature.get('place', 'a row')} has {held} tokens for its {len(feature[PICTURES])} pictures, and "
                f"the processor writes {count} for them.",
                why="every token of a picture gets one state of it.",
                fix="leave the pictures as they were when the run began, or start the run again.",
            )
    return numbers
