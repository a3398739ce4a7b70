"""Which layout rows of objects have, by their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from supertrainer.data.prepare.chat import COMPLETION_NAMES, MESSAGE_NAMES, PROMPT_NAMES, first_of
from supertrainer.data.prepare.columns import NAMES
from supertrainer.data.prepare.options import Layout
from supertrainer.data.prepare.pictures import CAPTION_NAMES, IMAGE_NAMES, SUFFIXES
from supertrainer.data.prepare.spans import SPAN_KEYS
from supertrainer.data.prepare.word_lists import TAG_NAMES, TOKEN_NAMES

KNOWN = frozenset(
    name
    for names in (*NAMES.values(), MESSAGE_NAMES, PROMPT_NAMES, COMPLETION_NAMES, IMAGE_NAMES, CAPTION_NAMES, SPAN_KEYS)
    for name in names
) | {"rejected", "instruction", "tokens", "tags", "ner_tags", "id"}


def object_layout(sample: Sequence[Any]) -> tuple[Layout, str]:
    """The layout of rows that are objects (or spaCy's pairs), by the keys that most of them have, and why."""
    if sum(isinstance(row, list) for row in sample) > len(sample) / 2:
        if all(len(row) == 2 and isinstance(row[1], dict) for row in sample if isinstance(row, list)):
            return "spans", "rows are pairs of a text and an object, as spaCy writes them"
        return "messages", "rows are lists of messages"
    counts = Counter(key for row in sample if isinstance(row, dict) for key in row)
    keys = [key for key, count in counts.items() if count > len(sample) / 2]
    for layout, found in _candidates(keys, sample):
        least = min(counts[key] for key in found)
        return layout, f"{least} of the first {len(sample)} rows have {' and '.join(found)}"
    return "labelled", f"rows have the columns {', '.join(counts)}"


def _candidates(keys: Sequence[str], sample: Sequence[Any]) -> list[tuple[Layout, list[str]]]:
    """Layouts that these keys can mean, the one that asks for most first."""
    image = first_of(IMAGE_NAMES, [key for key in keys if _holds_pictures(sample, key)])
    talk = first_of(MESSAGE_NAMES, keys)
    prompt = first_of(PROMPT_NAMES, keys)
    completion = first_of([name for name in COMPLETION_NAMES if name != "chosen"], keys)
    caption = first_of(CAPTION_NAMES, keys)
    words, tags = first_of(TOKEN_NAMES, keys), first_of(TAG_NAMES, keys)
    spans = next((key for key in SPAN_KEYS if key in keys and _holds_spans(sample, key)), None)
    wanted: list[tuple[Layout, list[str | None]]] = [
        ("llava", [image, talk]),
        ("picture_questions", [image, first_of(("qa", "questions", "question"), keys)]),
        ("picture_captions", [image, caption]),
        ("preference", ["chosen", "rejected"]),
        ("unpaired_preference", ["prompt", "completion", "label"]),
        ("alpaca", ["instruction", first_of(("output", "response"), keys)]),
        ("messages" if talk == "messages" else "sharegpt", [talk]),
        ("tokens", [words, tags]),
        ("spans", ["data", first_of(("annotations", "completions"), keys)]),
        ("spans", [first_of(("text", "data"), keys), spans]),
        ("prompt_completion", [prompt, completion]),
    ]
    have = [(layout, [key for key in found if key is not None]) for layout, found in wanted if None not in found]
    return [(layout, found) for layout, found in have if all(key in keys for key in found)]


def _holds_spans(sample: Sequence[Any], key: str) -> bool:
    values = [row[key] for row in sample if isinstance(row, dict) and isinstance(row.get(key), list) and row[key]]
    return any(isinstance(item, dict) or (isinstance(item, list) and len(item) == 3) for v in values for item in v)


def _holds_pictures(sample: Sequence[Any], key: str) -> bool:
    values = [row[key] for row in sample if isinstance(row, dict) and row.get(key)]
    firsts = [value[0] if isinstance(value, list) else value for value in values]
    return any(isinstance(v, dict) or (isinstance(v, str) and v.lower().endswith(SUFFIXES)) for v in firsts)
