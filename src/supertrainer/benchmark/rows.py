"""Labelled rows, as a benchmark and a baseline take them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Text = str | Sequence[str]
"""One text, or a pair of them (premise and hypothesis, question and answer), or the words of one."""


@dataclass(frozen=True)
class LabelledTexts:
    """`texts[i]` carries `labels[i]`. Both may be lazy columns: they are read by row number.

    Attributes:
        labels: an id of the label set; for each label 1.0 or 0.0; a number; the ids of all words' tags; the ids of
            the tokens that were masked.
        names: of the label set, or of all tokens, in the order of their ids.
    """

    texts: Sequence[Text]
    labels: Sequence[Any]
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise ValueError(f"{len(self.texts)} texts and {len(self.labels)} labels: every row has one of each.")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Conversations:
    """`prompts[i]` was answered with `answers[i]`. All may be lazy columns: they are read by row number.

    Attributes:
        prompts: what came before the last answer, as a text to read.
        answers: the last answer; None for a row that has none, such as a text that is learnt as a whole.
        labels: the ids of the tokens that are to be told.
        vocabulary: number of tokens.
    """

    prompts: Sequence[str]
    answers: Sequence[str | None]
    labels: Sequence[Any]
    vocabulary: int

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class PictureQuestions:
    """`questions[i]` about `pictures[i]` has the answers `references[i]`, at least one.

    Attributes:
        questions: what is asked, as a text to read.
        references: what people answered; the first is shown.
        types: of the questions; empty where there is none.
        pictures: their files, for the records; empty where they are in none.
        numbers: of the rows in their split.
    """

    questions: Sequence[str]
    references: Sequence[Sequence[str]]
    types: Sequence[str]
    pictures: Sequence[Sequence[str]]
    numbers: Sequence[int]

    def __len__(self) -> int:
        return len(self.numbers)


def as_one_text(text: Text) -> str:
    """The text itself; of a pair, both on lines of their own."""
    return text if isinstance(text, str) else "\n".join(text)
