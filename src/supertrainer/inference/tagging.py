"""Token classification of texts: words, their tags, and the spans that these mark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

import torch

from supertrainer.core import iob2
from supertrainer.data.collation import EncodedRows
from supertrainer.data.words import encode_words
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.reading import Row

DIGITS = 6
Words = list[tuple[str, int, int]]
"""Words with their first character's place and the place after their last."""

_PATTERNS = {"punctuation": re.compile(r"\w+|[^\w\s]"), "whitespace": re.compile(r"\S+")}


def split_words(text: str | Sequence[str], *, how: Literal["punctuation", "whitespace"]) -> Words:
    """The words of a text; of a list of words, their places where one space stands between two."""
    if isinstance(text, str):
        return [(found.group(), found.start(), found.end()) for found in _PATTERNS[how].finditer(text)]
    words, place = [], 0
    for word in text:
        words.append((word, place, place + len(word)))
        place += len(word) + 1
    return words


def tag_rows(
    engine: HfEngine, texts: Sequence[str | Sequence[str]], words: Sequence[Words], *, max_length: int
) -> list[Row]:
    """What a tagger adds to each row: `entities` where its tags mark spans, else `words` and `tags`.

    Words beyond `max_length` tokens are outside of every span; of tags they have none ("").
    """
    names = engine.trained.label_names
    encoded = encode_words(
        [[word for word, _, _ in row] for row in words], engine.trained.tokenizer, max_length=max_length
    )
    kept, rows = encoded["words"], EncodedRows(encoded)
    of_spans = iob2.is_iob2(names)
    added: list[Row] = [{} for _ in texts]
    for logits, numbers in engine.logits(rows):
        best = logits.double().softmax(dim=1).max(dim=1)
        sizes = [len(kept[number]) for number in numbers]
        for number, scores, ids in zip(numbers, best.values.split(sizes), best.indices.split(sizes), strict=True):
            tags = [iob2.OUTSIDE if of_spans else ""] * len(words[number])
            certain = torch.ones(len(tags), dtype=torch.float64)
            for place, score, tag in zip(kept[number], scores.tolist(), ids.tolist(), strict=True):
                tags[place], certain[place] = names[tag], score
            if of_spans:
                added[number] = {"entities": _entities(texts[number], words[number], tags, certain)}
            else:
                added[number] = {"words": [word for word, _, _ in words[number]], "tags": tags}
    return added


def _entities(text: str | Sequence[str], words: Words, tags: Sequence[str], certain: torch.Tensor) -> list[Row]:
    """The spans with their places in the text; the score is the least probability of their tags."""
    whole = text if isinstance(text, str) else " ".join(text)
    found = []
    for name, first, after in iob2.spans(tags):
        start, end = words[first][1], words[after - 1][2]
        score = round(float(certain[first:after].min()), DIGITS)
        found.append({"type": name, "text": whole[start:end], "start": start, "end": end, "score": score})
    return found
