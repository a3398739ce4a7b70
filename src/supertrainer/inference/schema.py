"""The config of each task's inferencer. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

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
