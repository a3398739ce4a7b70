"""Everything that a preparation is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from supertrainer.data.prepare.chat import Turns
from supertrainer.data.prepare.containers import ReadingOptions
from supertrainer.data.prepare.plain_text import TextUnit
from supertrainer.data.prepare.rules import Rule
from supertrainer.data.prepare.spans import Misaligned, Words
from supertrainer.data.prepare.tag_schemes import Scheme

Layout = Literal[
    "labelled", "fasttext", "class_files", "class_folders", "text", "conll", "tokens", "spans", "messages", "sharegpt",
    "alpaca", "prompt_completion", "preference", "unpaired_preference", "picture_folders", "picture_captions",
    "picture_questions", "llava",
]  # fmt: skip
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Across = Literal["drop", "error", "keep"]
OutputFormat = Literal["jsonl", "parquet"]


@dataclass(frozen=True, kw_only=True)
class PrepareOptions:
    """The settings of one preparation; None is detected or not wanted. `command.py` says what each one does."""

    source: str
    out: Path
    layout: Layout | None = None
    task: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    columns: Mapping[str, str] = field(default_factory=dict)
    label_columns: tuple[str, ...] = ()
    label_separator: str | None = None
    decimal: Literal["point", "comma"] | None = None
    keep: tuple[str, ...] = ()
    group: str | None = None
    word_column: int | None = None
    tag_column: int | None = None
    tag_names: tuple[str, ...] | None = None
    scheme: Scheme | None = None
    words: Words = "punctuation"
    misaligned: Misaligned = "drop_row"
    turns: Turns = "strict"
    text_unit: TextUnit | None = None
    images: Path | None = None
    absolute_images: bool = False
    question: str | None = None
    rules: tuple[Rule, ...] = ()
    splits: Mapping[str, float] | None = None
    stratify: bool = True
    seed: int = 42
    across_splits: Across = "drop"
    max_dropped: float = 0.1
    format: OutputFormat = "jsonl"
    dry_run: bool = False
    overwrite: bool = False
