"""Rows as the model will see them, for people: lengths of every split, and tokens with what is to be learnt of each."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.data.collation import IGNORED, collate

if TYPE_CHECKING:
    import datasets
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class LengthStats:
    """Tokens of a split's rows.

    Attributes:
        rows: how many were counted.
        of: how many there are: more than `rows` where a part was counted, evenly spaced.
        tokens: of the counted rows, special ones too.
        median: the middle length.
        longest: the greatest length.
        truncated: rows that were cut.
        of_pictures: how many of the tokens stand for pictures.
    """

    rows: int
    of: int
    tokens: int
    median: int
    longest: int
    truncated: int
    of_pictures: int = 0

    def text(self) -> str:
        """In a line, saying where only a part was counted."""
        text = f"{self.tokens:,} tokens; median {self.median}, longest {self.longest}"
        text += f"; {self.of_pictures:,} of pictures" if self.of_pictures else ""
        text += f"; {self.truncated:,} cut ({self.truncated / self.rows:.1%})" if self.truncated else "; none cut"
        if self.rows < self.of:
            text += f" (in {self.rows:,} of the {self.of:,} rows, evenly spaced: the longest may be longer)"
        return text


def length_stats(encoded: datasets.Dataset, *, of: int) -> LengthStats:
    """The lengths of rows that `encode` gave.

    Args:
        of: how many rows the split has.
    """
    lengths = np.asarray(encoded["length"], dtype=np.int64)
    middle = int(np.sort(lengths)[len(lengths) // 2])
    return LengthStats(
        rows=len(lengths),
        of=of,
        tokens=int(lengths.sum()),
        median=middle,
        longest=int(lengths.max()),
        truncated=sum(map(bool, encoded["truncated"])),
        of_pictures=sum(encoded["picture_tokens"]) if "picture_tokens" in encoded.column_names else 0,
    )


@dataclass(frozen=True)
class RowView:
    """One row of a batch.

    Attributes:
        place: where it stands, such as `train.csv:17`.
        tokens: of the row, the special ones too, without padding.
        targets: what is to be learnt of each token, None for those that carry no loss; None where the row as a whole
            has a label.
        label: of the row as a whole; empty where tokens have their own.
        padding: how many padding tokens follow in this batch.
        special: which of the tokens the tokenizer added.
    """

    place: str
    tokens: tuple[str, ...]
    targets: tuple[str | None, ...] | None
    label: str
    padding: int
    special: tuple[bool, ...]


def row_views(
    rows: Any,
    numbers: Sequence[int],
    *,
    tokenizer: PreTrainedTokenizerBase,
    label_names: Sequence[str],
    places: Sequence[str],
) -> list[RowView]:
    """Rows through the collator of training, and back to words.

    Args:
        rows: of `TaskDataset.model_rows`.
        numbers: which of them: one batch.
        tokenizer: that encoded them.
        label_names: in the order of the ids; empty where a label is a token.
        places: where each of these rows stands.
    """
    batch = collate([rows[number] for number in numbers], pad_token_id=tokenizer.pad_token_id)
    views = []
    for line, place in enumerate(places):
        real = int(batch["attention_mask"][line].sum())
        ids = batch["input_ids"][line, :real].tolist()
        labels = batch["labels"][line].tolist() if "labels" in batch else None
        of_tokens = isinstance(labels, list) and not batch["labels"].is_floating_point()
        targets = _targets(labels[:real], tokenizer, label_names) if of_tokens and labels is not None else None
        views.append(
            RowView(
                place=place,
                tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
                targets=targets,
                label="" if of_tokens or labels is None else _label(labels, label_names),
                padding=batch["input_ids"].shape[1] - real,
                special=tuple(token in tokenizer.all_special_ids for token in ids),
            )
        )
    return views


def _targets(
    labels: Sequence[int], tokenizer: PreTrainedTokenizerBase, label_names: Sequence[str]
) -> tuple[str | None, ...]:
    """The name of every token's label: of a class, or, where there are none, of the token that has to be told."""
    return tuple(
        None if label == IGNORED else label_names[label] if label_names else tokenizer.convert_ids_to_tokens(label)
        for label in labels
    )


def _label(label: Any, label_names: Sequence[str]) -> str:
    if isinstance(label, list):  # a number for every class
        return ", ".join(name for name, value in zip(label_names, label, strict=True) if value) or "none of the labels"
    return f"{label:g}" if isinstance(label, float) else label_names[label]


@dataclass(frozen=True)
class Piece:
    """A run of tokens as text, and whether they are learnt."""

    text: str
    learnt: bool


@dataclass(frozen=True)
class TextView:
    """One row whose labels are its own tokens, as text.

    Attributes:
        place: where it stands, such as `train.jsonl:17`.
        pieces: the text in runs that are learnt or aren't, special tokens too.
        tokens: how many there are.
        learnt: how many of them are learnt.
    """

    place: str
    pieces: tuple[Piece, ...]
    tokens: int
    learnt: int


def text_views(
    rows: Any,
    numbers: Sequence[int],
    *,
    tokenizer: PreTrainedTokenizerBase,
    places: Sequence[str],
    picture_token: int | None = None,
) -> list[TextView]:
    """Rows of a causal language model as text.

    Args:
        rows: of `TaskDataset.model_rows`.
        numbers: which of them.
        tokenizer: that encoded them.
        places: where each of these rows stands.
        picture_token: what stands for a part of a picture; runs of it are told as `[picture: 64 tokens]`.
    """
    views = []
    for number, place in zip(numbers, places, strict=True):
        ids, labels = rows[number]["input_ids"].tolist(), rows[number]["labels"].tolist()
        pieces = text_pieces(ids, labels, tokenizer, picture_token=picture_token)
        views.append(TextView(place, pieces, len(ids), sum(label != IGNORED for label in labels)))
    return views


def text_pieces(
    ids: Sequence[int],
    labels: Sequence[int],
    tokenizer: PreTrainedTokenizerBase,
    *,
    picture_token: int | None = None,
) -> tuple[Piece, ...]:
    """Tokens as text, in runs that are learnt or aren't; runs of the picture token are only counted."""
    pieces = []
    marked = ((token, label != IGNORED, token == picture_token) for token, label in zip(ids, labels, strict=True))
    for (learnt, is_picture), run in itertools.groupby(marked, key=lambda item: item[1:]):
        tokens = [token for token, _, _ in run]
        text = tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        pieces.append(Piece(f"[picture: {len(tokens):,} tokens]" if is_picture else text, learnt))
    return tuple(pieces)


def marked_text(
    ids: Sequence[int], labels: Sequence[int], tokenizer: PreTrainedTokenizerBase, *, most: int = 200
) -> str:
    """At most so many tokens as one text, with what is learnt in ⟦ ⟧."""
    pieces = text_pieces(ids[:most], labels[:most], tokenizer)
    text = "".join(f"⟦{piece.text}⟧" if piece.learnt else piece.text for piece in pieces)
    return text + (f" … and {len(ids) - most} more tokens" if len(ids) > most else "")


def bars(counts: Mapping[str, int], *, total: int, width: int = 24) -> list[tuple[str, str, str, str]]:
    """Label, rows, share of all and a bar, for a table."""
    most = max(counts.values(), default=0)
    return [
        (name, f"{count:,}", f"{count / total:.1%}" if total else "-", "▇" * round(width * count / max(most, 1)))
        for name, count in counts.items()
    ]
