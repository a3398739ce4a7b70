"""Config classes of what every dataset has: source, format, splits, limits, policies. No torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from supertrainer.config.strict import ExistingSource, StrictModel, TargetModel

SPLITS = ("train", "validation", "test")
Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "arrow", "saved", "folders", "yaml", "text", "hub"]
TextUnit = Literal["file", "paragraph", "line"]
Policy = Literal["error", "drop"]


def _share(value: str | float | None) -> str | float | None:
    if isinstance(value, float) and not 0 < value < 1:
        raise ValueError(
            f"{value:g} is no share of the train rows. Fix: a number between 0 and 1; `limits` caps the rows."
        )
    return value


NameOrShare = Annotated[str | float | None, AfterValidator(_share)]


class SplitsConfig(StrictModel):
    """Which rows are for what: a file, folder, pattern or split name of the source; or a share of the train rows."""

    train: str | None = Field(
        None,
        description="File, folder or pattern (train-*.parquet) relative to the source, or the source's name of the "
        "split; null: what the source calls so, or all of it.",
    )
    validation: NameOrShare = Field(None, description="The same, or a share of the train rows such as 0.1; null: none.")
    test: NameOrShare = Field(None, description="As validation.")

    @model_validator(mode="after")
    def _leaves_train_rows(self) -> SplitsConfig:
        made = self.made()
        if sum(made.values()) >= 1:
            shares = " + ".join(f"{split} {share:g}" for split, share in made.items())
            raise ValueError(f"{shares} leave no train rows. Fix: shares that sum to less than 1.")
        return self

    def given(self) -> dict[str, str | None]:
        """The splits that the source holds: split -> file or name; train is None where it isn't named."""
        named = {"validation": self.validation, "test": self.test}
        return {"train": self.train, **{split: name for split, name in named.items() if isinstance(name, str)}}

    def made(self) -> dict[str, float]:
        """The splits to be taken out of the train rows: split -> share."""
        shares = {"validation": self.validation, "test": self.test}
        return {split: share for split, share in shares.items() if isinstance(share, float)}


class LimitsConfig(StrictModel):
    """At most so many rows of a split: a seeded sample that keeps the shares of the labels."""

    train: int | None = Field(None, gt=0)
    validation: int | None = Field(None, gt=0)
    test: int | None = Field(None, gt=0)

    def of(self, split: str) -> int | None:
        """The limit of a split; None where there is none."""
        return {"train": self.train, "validation": self.validation, "test": self.test}[split]


class CsvConfig(StrictModel):
    """How a CSV or TSV file is written. No cell is taken for a number or missing: `01`, `NA`, `null` stay text."""

    delimiter: str | None = Field(None, min_length=1, max_length=1, description="null: a comma, in a TSV file a tab.")
    quote: str | None = Field(
        '"', min_length=1, max_length=1, description="Mark around cells; null: the file quotes nothing."
    )
    escape: str | None = Field(
        None, min_length=1, max_length=1, description="Mark before a quote inside quotes; null: it is doubled."
    )
    column_names: tuple[str, ...] | None = Field(None, description="The columns of a file that has no header line.")

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> CsvConfig:
        marks = [mark for mark in (self.delimiter, self.quote, self.escape) if mark is not None]
        if len(set(marks)) < len(marks) or set(marks) & {"\r", "\n"}:
            raise ValueError(f"delimiter, quote and escape are {marks}. Fix: three different marks that end no line.")
        names = self.column_names or ()
        if len(set(names)) < len(names):
            raise ValueError(f"column_names={list(names)} names a column twice. Fix: every name once.")
        return self


class DatasetConfig(TargetModel):
    """What every dataset has: a source, its format, splits, limits and what is done about faulty rows."""

    holds_pictures: ClassVar[bool] = False
    """Whether tokens of its rows stand for pictures."""

    source: ExistingSource = Field(description="Local file or directory, package://MODULE/PATH, or a Hub id.")
    format: Format | None = Field(None, description="null: by the suffix of the file or by what the directory holds.")
    name: str | None = Field(None, description="Configuration of a Hub set that has several.")
    revision: str | None = Field(None, description="Branch, tag or commit of a Hub set.")
    splits: SplitsConfig | None = Field(None, description="null: as the source names them.")
    split_seed: int | None = Field(
        42,
        ge=0,
        description="Seed of made splits and limits; apart from run.seed, so that runs with other seeds are tested on "
        "the same rows. null: run.seed.",
    )
    limits: LimitsConfig = LimitsConfig()
    encoding: str = Field("utf-8", description="Of text files; a byte order mark is skipped.")
    fallback_encoding: str | None = Field(
        None, description="Of files that aren't in `encoding`; the report names them. null: they are an error."
    )
    csv: CsvConfig = CsvConfig()
    list_columns: tuple[str, ...] | None = Field(
        None, description="JSON rows that are lists: the names of their items, such as [question, answer]."
    )
    text_unit: TextUnit = Field(
        "file", description="What a row is in plain text files (format=text): blank lines stand between paragraphs."
    )
    on_empty_text: Policy = Field("error", description="A row without text.")
    on_repeated_rows: Literal["keep", "drop", "error"] = Field(
        "keep", description="The same text again within a split. Kept copies stay on one side of made splits."
    )
    on_repeated_across_splits: Policy = Field(
        "error", description="A text in two given splits; drop: out of train, then out of validation."
    )

    @field_validator("encoding", "fallback_encoding")
    @classmethod
    def _is_known(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                "".encode(value)
            except LookupError:
                raise ValueError(
                    f"Python knows no encoding {value!r}. Fix: utf-8, utf-16, cp1252 or latin-1, say."
                ) from None
        return value
