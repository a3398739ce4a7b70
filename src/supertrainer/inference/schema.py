"""The config of each task's inferencer. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from supertrainer.config.strict import ExistingSource, StrictModel, TargetModel
from supertrainer.core.errors import Problem


class InputColumns(StrictModel):
    """Names of the columns that hold a row's text."""

    text: str = "text"
    text_pair: str | None = Field(default=None, description="The second text of a pair.")


class InferencerConfig(TargetModel):
    """What every inferencer has: a file in, a file out."""

    input: ExistingSource | None = Field(
        default=None,
        description="CSV, TSV, JSON lines or Parquet file, by its ending; a path or package://MODULE/PATH.",
    )
    output: str | None = Field(
        default=None,
        description="The file to write, in the format of its ending. null: in the run directory, as the input.",
    )
    encoding: str = Field(default="utf-8", description="Of text files; a byte order mark is skipped.")
    chunk_rows: int = Field(default=10_000, gt=0, description="Rows in memory at once.")
    on_empty_text: Literal["error", "blank"] = Field(
        default="error", description="A row without text; blank: it is kept, without a prediction."
    )
    prefix: str = Field(default="", description="Put before the names of the added columns.")

    def rules(self, config: Any) -> Iterable[Problem]:
        if self.input is None and "infer" in (config.operation, *config.then):
            yield Problem("inferencer.input: operation=infer needs a file.", fix="inferencer.input=PATH.")
        if (
            self.input is not None
            and self.output is not None
            and Path(self.output).resolve() == Path(self.input).resolve()
        ):
            yield Problem(
                f"inferencer.output={self.output}: is the input.",
                why="it would be overwritten.",
                fix="name another file.",
            )


class BertInferencerConfig(InferencerConfig):
    """Predictions of an encoder's head for a file's rows."""

    columns: InputColumns = Field(default_factory=InputColumns)
    max_length: int | None = Field(
        default=None, ge=4, description="Longest row in tokens, longer ones are cut; null: as the model was trained."
    )
    probabilities: bool = Field(default=True, description="A column with the probability of each label.")
    threshold: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="A label applies from this probability on; null: as the model was trained.",
    )
    words: Literal["punctuation", "whitespace"] = Field(
        default="punctuation",
        description="How a text becomes words for a tagger. punctuation: marks are words of their own; whitespace: "
        "words stand between spaces. A list of words is taken as it is.",
    )
    long_texts: Literal["truncate", "stride"] | None = Field(
        default=None, description="As dataset.long_texts; null: as the model was trained."
    )
    overlap: int | None = Field(default=None, ge=0, description="As dataset.overlap; null: as the model was trained.")
    pooling: Literal["mean", "max"] | None = Field(
        default=None, description="As dataset.pooling; null: as the model was trained."
    )


class GenerationConfig(StrictModel):
    """How text is generated. Everything that chooses a token is said here: nothing comes from the model's own files."""

    max_new_tokens: int = Field(default=256, ge=1, description="An answer's tokens at most.")
    temperature: float = Field(default=0.0, ge=0, description="0: the likeliest token each time; 1: as the model says.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Of the likeliest tokens, those that make up this share.")
    top_k: int = Field(default=0, ge=0, description="Of the likeliest tokens, so many; 0: all.")
    min_p: float = Field(
        default=0.0, ge=0, lt=1, description="Tokens of this share of the likeliest one's probability."
    )
    repetition_penalty: float = Field(
        default=1.0, gt=0, description="Over 1: tokens of the prompt and the answer so far become less likely."
    )
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="Texts at which an answer ends, beside the model's own end tokens; they are cut off."
    )
    seed: int = Field(default=0, ge=0, description="Of what is drawn: each row's answer depends on it alone.")
    num_samples: int = Field(default=1, ge=1, description="Answers to each prompt.")


class LlmColumns(StrictModel):
    """Names of the columns that a prompt is made of. With neither prompt nor messages: the file's own messages,
    conversations, …, else prompt, else Alpaca's instruction.
    """

    prompt: str | None = Field(default=None, description="A text: what the user says; or messages.")
    messages: str | None = Field(
        default=None, description="A conversation in any layout of dataset=llm/messages: a list, or its JSON."
    )
    system: str | None = Field(
        default=None, description="A text: what comes before the conversation; null: the file's own `system`."
    )
    tools: str | None = Field(
        default=None, description="A list of the tools that may be called, or its JSON; null: the file's own `tools`."
    )

    def problems(self) -> Iterable[Problem]:
        """A prompt and messages exclude each other."""
        if self.prompt is not None and self.messages is not None:
            yield Problem(
                f"inferencer.columns: prompt={self.prompt} and messages={self.messages}.",
                why="a row is one or the other.",
                fix="inferencer.columns.prompt=null, or inferencer.columns.messages=null.",
            )


class LlmInferencerConfig(InferencerConfig):
    """Answers of a language model to a file's prompts or conversations."""

    columns: LlmColumns = Field(default_factory=LlmColumns)
    system: str | None = Field(default=None, description="A system message for every row that has none of its own.")
    plain_text: bool = Field(
        default=False, description="Prompts are texts to go on with as they stand, without a chat template."
    )
    chat_template: str | None = Field(
        default=None, description="A template that the model must have been trained with: the text, or a file's path."
    )
    generation: GenerationConfig = Field(default_factory=GenerationConfig)

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        yield from self.columns.problems()
        if self.plain_text and (self.columns.messages or self.columns.system or self.system):
            yield Problem(
                "inferencer.plain_text=true with messages or a system text.",
                why="without a template nothing tells the turns apart.",
                fix="inferencer.plain_text=false.",
            )


class MllmColumns(LlmColumns):
    """Names of the columns that a prompt with pictures is made of. null: the usual names that the file has."""

    images: tuple[str, ...] | None = Field(
        default=None,
        description="Columns of pictures: paths from the file's folder, bytes, base64, data: URLs, or lists of them; "
        "an empty cell is no picture. null: the first of image, images, image_path, …",
    )
    prompt: str | None = Field(default=None, description="A text: what is asked; <image> says where a picture stands.")


class MllmInferencerConfig(InferencerConfig):
    """Answers of a vision-language model to a file's questions about pictures."""

    columns: MllmColumns = Field(default_factory=MllmColumns)
    system: str | None = Field(default=None, description="A system message for every row that has none of its own.")
    image_root: str | None = Field(default=None, description="Where relative paths begin; null: the file's folder.")
    image_pattern: str | None = Field(
        default=None, description="The path of a picture that is named by a number or word, such as images/{:06d}.png."
    )
    max_pixels: int = Field(default=89_478_485, gt=0, description="Larger pictures are refused.")
    background: Literal["white", "black"] = Field(
        default="white", description="What is seen through transparent pixels."
    )
    generation: GenerationConfig = Field(default_factory=GenerationConfig)

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        yield from self.columns.problems()
