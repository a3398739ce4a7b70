"""Labelled rows, as a benchmark and a baseline take them. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Text = str | tuple[str, str]
"""One text, or a pair of them (premise and hypothesis, question and answer)."""


@dataclass(frozen=True)
class LabelledTexts:
    """`texts[i]` carries `labels[i]`, an id of the label set. Both may be lazy columns: they are read by row number."""

    texts: Sequence[Text]
    labels: Sequence[int]

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.labels):
            raise ValueError(f"{len(self.texts)} texts and {len(self.labels)} labels: every row has one of each.")

    def __len__(self) -> int:
        return len(self.labels)


def as_one_text(text: Text) -> str:
    """The text itself; of a pair, both on lines of their own."""
    return text if isinstance(text, str) else "\n".join(text)
