"""Config class of the streams of documents. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, field_validator, model_validator

from supertrainer.config.strict import ExistingSource, NotIdentity, StrictModel, TargetModel
from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path
from supertrainer.data.streams.patterns import matching, split_pattern

Format = Literal["auto", "text", "jsonl", "parquet", "arrow", "memmap"]
OnOdd = Literal["drop", "error"]
MAX_STREAMS = 64


def _names_files(path: str) -> str:
    base, pattern = split_pattern(path)
    try:
        if pattern is None:
            local_path(path)
        elif not matching(base, pattern):
            raise ValueError(f"{path} matches no file. Fix: a pattern of files that are there.")
    except ConfigError as error:
        [problem] = error.problems
        raise ValueError(f"{problem.what} Fix: {problem.fix}") from None
    return path


class StreamSource(StrictModel):
    """Files of documents, and their share of the training tokens."""

    path: Annotated[str, AfterValidator(_names_files)] = Field(
        description="A file, a folder, a pattern of files, package://MODULE/PATTERN, or a Hub id."
    )
    files: str | None = Field(
        None, description="Pattern of the files inside a folder or Hub id; null: all of a format."
    )
    revision: str | None = Field(None, description="Branch, tag or commit of a Hub id.")
    weight: float = Field(1.0, gt=0, description="Share of the training tokens, relative to the other sources'.")
    format: Format = Field("auto", description="auto: by the files' endings.")
    text_column: str = Field("text", min_length=1, description="Column or key that holds a document's text.")
    document_separator: str | None = Field(
        None,
        min_length=1,
        description="What stands between documents in a plain text file; null: a file is a document.",
    )
    max_epochs: int | None = Field(None, gt=0, description="How often it may be read; null: as often as needed.")

    @field_validator("weight")
    @classmethod
    def _is_finite(cls, value: float) -> float:
        if not math.isfinite(value):
            raise ValueError(f"{value} is no weight. Fix: a number above 0.")
        return value


class TokenizerTraining(StrictModel):
    """A tokenizer of the sources' own, trained once and kept."""

    vocab_size: int = Field(4096, gt=0, description="Tokens in all, special ones included.")
    max_characters: int = Field(
        500_000_000, gt=0, description="Of the documents that it is trained on, over all sources by their weights."
    )


class ValidationConfig(StrictModel):
    """Which documents are held out: never trained on."""

    share: float = Field(0.01, ge=0, lt=1, description="Share of the documents, chosen by a hash; 0: none.")


Sources = Annotated[
    Mapping[str, StreamSource],
    AfterValidator(lambda sources: MappingProxyType(dict(sources))),
    PlainSerializer(dict),
]


class StreamDatasetConfig(TargetModel):
    """Documents of one or several sources, as rows of token ids."""

    sources: Sources = Field(description="Name -> where its documents are and how much of them is taken.")
    tokenizer: ExistingSource | None = Field(
        None, description="A directory, package:// path, run directory, GGUF file or Hub id that has one."
    )
    tokenizer_training: TokenizerTraining | None = Field(None, description="Or train one on the sources.")
    add_bos: bool | None = Field(
        None, description="Begin a document with BOS; null: where the tokenizer has one apart from its EOS."
    )
    add_eos: bool = Field(True, description="End a document with EOS.")
    special_tokens: Literal["text", "token"] = Field(
        "text", description="What `<|end_of_text|>` and the like become that are written out in a document."
    )
    isolate_documents: bool = Field(
        True, description="Documents in a row don't see each other, and none is asked for the next one's beginning."
    )
    validation: ValidationConfig = ValidationConfig()
    num_streams: int | None = Field(
        None,
        gt=0,
        description="Logical streams, a divisor of the global batch; null: the largest one up to 64 that the documents "
        "suffice for.",
    )
    on_null: OnOdd = Field("drop", description="A row whose text is null or absent.")
    on_empty: OnOdd = Field("drop", description="A document of white space only.")
    on_broken: Literal["drop", "error", "replace"] = Field(
        "drop",
        description="A document that is no UTF-8 or no JSON; replace: U+FFFD stands for bytes that are no UTF-8.",
    )
    on_huge: Literal["split", "drop", "error"] = Field(
        "split",
        description="A document of more than huge_characters; split: it is encoded in pieces, cut at white space, and "
        "stays one document.",
    )
    huge_characters: int = Field(4_000_000, ge=1_000)
    block_bytes: int = Field(
        64 << 20,
        ge=1 << 10,
        le=64 << 20,
        description="Largest block of text whose documents are shuffled among themselves; blocks are shuffled too.",
    )
    max_open_blocks: Annotated[int | None, NotIdentity] = Field(
        None,
        gt=0,
        description="Blocks open at once in a process, which bounds its memory; null: one for each stream and source.",
    )
    workers: Annotated[int, NotIdentity] = Field(
        1, ge=0, le=64, description="Threads of a process that read and encode ahead; 0: none, when rows are asked for."
    )
    cache: Annotated[str | None, NotIdentity] = Field(
        None, description="Where compressed text is unpacked once; null: ~/.cache/supertrainer (XDG_CACHE_HOME counts)."
    )

    def policy(self, kind: str) -> str:
        """What becomes of a document that is `null`, `empty`, `broken` or `huge`."""
        return {"null": self.on_null, "empty": self.on_empty, "broken": self.on_broken, "huge": self.on_huge}[kind]

    def further_identity(self, config: Any) -> Mapping[str, Any]:
        """A run under `error` that goes on computes what it does under `drop`: neither has trained on such a document.

        So one that has met an odd document in its middle goes on, without it.
        """
        kinds = ("null", "empty", "broken", "huge")
        return {f"dataset.on_{kind}": "drop" for kind in kinds if self.policy(kind) == "error"}

    @field_validator("sources")
    @classmethod
    def _are_some(cls, value: Mapping[str, StreamSource]) -> Mapping[str, StreamSource]:
        if not value:
            raise ValueError("no source is named. Fix: sources={text: {path: texts/*.txt}}, say.")
        return value

    @model_validator(mode="after")
    def _has_one_tokenizer(self) -> StreamDatasetConfig:
        if (self.tokenizer is None) == (self.tokenizer_training is None):
            have = "neither" if self.tokenizer is None else "both"
            raise ValueError(
                f"{have} of tokenizer and tokenizer_training. Fix: one of them: tokenizer=DIRECTORY or "
                "tokenizer_training.vocab_size=4096."
            )
        if self.tokenizer_training is not None and any(s.format == "memmap" for s in self.sources.values()):
            raise ValueError(
                "tokenizer_training with a source of token ids. Fix: tokenizer=the one that made the token ids."
            )
        return self
