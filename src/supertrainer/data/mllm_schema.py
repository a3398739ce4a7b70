"""The config class of rows with pictures. No torch."""

from __future__ import annotations

import string
from typing import Literal

from pydantic import Field, field_validator

from supertrainer.data.chat_schema import ConversationDatasetConfig, NamedColumns
from supertrainer.data.source_schema import Policy

PictureLayout = Literal["auto", "messages", "question_answer", "caption"]
TooLongWithPictures = Literal["error", "drop", "left", "right"]
MOST_PIXELS = 178_956_970  # Pillow itself opens no larger picture


class PictureColumns(NamedColumns):
    """The file's own names of the columns. null: the usual names, such as `image`, `images`, `messages`, `answer`."""

    images: str | None = Field(
        None, description="A picture, or a list of them: paths, bytes, base64, data: URLs, {bytes, path}."
    )
    messages: str | None = Field(None, description="A list of messages, also as a JSON text.")
    system: str | None = Field(None, description="The system turn of a row; null: `system`.")
    question: str | None = Field(None, description="What is asked about the pictures.")
    answer: str | None = Field(
        None, description="What is learnt: a text or number, or a list of answers, of which the commonest is learnt."
    )
    answers: str | None = Field(
        None,
        description="What several people answered, as a list of texts or of objects with `answer`: all count in the "
        "benchmark; null: `answers`.",
    )
    caption: str | None = Field(None, description="What is said of a picture without a question; null: caption, text.")
    question_type: str | None = Field(None, description="Rows of a type are scored together; null: `question_type`.")


class MllmDatasetConfig(ConversationDatasetConfig):
    """Conversations, questions or captions with one, several or no pictures a row, for a vision-language model."""

    holds_pictures = True
    layout: PictureLayout = Field(
        "auto",
        description="How a row is laid out. auto: by the names of its columns. messages: content in parts, or texts "
        "with <image> where a picture stands (LLaVA).",
    )
    columns: PictureColumns = PictureColumns()
    question: str = Field("Describe the picture.", min_length=1, description="What is asked of a row with a caption.")
    question_prefix: str | None = Field(
        None,
        description="A text before every question, such as <VQA>. It is saved with the model, which is then asked with "
        "it. null: what the model's template has of it; '': none.",
    )
    answer_types: dict[str, tuple[str, ...]] | None = Field(
        None, description="Question types by their answers: {yes/no: ['yes', 'no']}; other answers are `other`."
    )
    image_root: str | None = Field(
        None, description="Where relative paths of pictures begin; null: the folder of the file that names them."
    )
    image_pattern: str | None = Field(
        None, description="The path of a picture that is named by a number or word, such as images/{:06d}.png."
    )
    without_places: Literal["error", "first"] = Field(
        "error",
        description="Messages that say nowhere where their pictures stand. first: before the first question.",
    )
    background: Literal["white", "black"] = Field("white", description="What is seen through transparent pixels.")
    max_pixels: int = Field(
        89_478_485, gt=0, le=MOST_PIXELS, description="Larger pictures are refused before they are decoded."
    )
    decode_check: int | None = Field(
        1_000,
        ge=0,
        description="Pictures of each split that are decoded before training, evenly spaced; null: all. Of every other "
        "one the header is read.",
    )
    on_too_long: TooLongWithPictures = Field(
        "error",
        description="Rows of more than max_length tokens. left, right: text is cut there, pictures never: a row whose "
        "pictures alone are too long is an error.",
    )
    on_broken_pictures: Policy = Field(
        "error", description="A row with a picture that is missing, broken or too large."
    )

    @field_validator("image_pattern")
    @classmethod
    def _has_one_place(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                places = [place for _, place, _, _ in string.Formatter().parse(value) if place is not None]
            except ValueError as error:
                raise ValueError(f"{value!r} is no pattern: {error}. Fix: such as images/{{}}.png.") from None
            if places != [""]:
                raise ValueError(f"{value!r} has {len(places)} places. Fix: one, such as images/{{}}.png.")
        return value
