"""Texts with marked spans in character offsets -> words with tags.

Forms, told by their keys: `entities` or `spans` with start, end and label (as lists or objects), doccano's `label`
lists and `start_offset`, Label Studio's exports (whole and JSON_MIN), spaCy's `[text, {"entities": …}]`.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

from supertrainer.data.prepare.record import Notes, Raw, Row, RowFault, shown, text_of

Words = Literal["punctuation", "space", "character"]
Misaligned = Literal["drop_row", "drop_span", "expand"]
Span = tuple[int, int, str]
SPAN_KEYS = ("entities", "spans", "label", "labels", "annotations")
# Written without spaces between words: each character is a word.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_STARTS, _ENDS = ("start", "start_offset", "start_char"), ("end", "end_offset", "end_char")


def spans_converter(*, words: Words, misaligned: Misaligned, notes: Notes) -> Callable[[Raw], list[Row]]:
    """Divides the text into words and gives each the tag of its span.

    Args:
        words: `punctuation`: words and single punctuation marks; `space`: what stands between white space; `character`.
        misaligned: what is done with a span that begins or ends inside a word; each is noted.
    """

    def convert(raw: Raw) -> list[Row]:
        text, spans = text_and_spans(raw.values, notes=notes, place=raw.place)
        offsets = list(word_offsets(text, words))
        if not offsets:
            raise RowFault("text", "has no words")
        tags = ["O"] * len(offsets)
        for start, end, label in _checked(text, spans, notes=notes, place=raw.place):
            touched = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
            exact = bool(touched) and offsets[touched[0]][0] == start and offsets[touched[-1]][1] == end
            if not exact:
                what = (
                    f"span {start}..{end} ({shown(text[start:end], length=30)}, {label}) begins or ends inside a word"
                )
                if misaligned == "drop_row" or not touched:
                    raise RowFault("spans", f"{what} (--misaligned expand or drop_span keeps the row)")
                notes.add(f"misaligned spans: {misaligned}", place=f"{raw.place} {start}..{end}")
                if misaligned == "drop_span":
                    continue
            if any(tags[index] != "O" for index in touched):
                raise RowFault("spans", f"span {start}..{end} ({label}) overlaps another")
            for position, index in enumerate(touched):
                tags[index] = f"{'I' if position else 'B'}-{label}"
        return [{"tokens": [text[first:last] for first, last in offsets], "tags": tags}]

    return convert


def text_and_spans(values: Any, *, notes: Notes, place: str) -> tuple[str, list[Span]]:
    """The text and the spans of a row in any of the forms.

    Raises:
        RowFault: it is in none of them; names the key.
    """
    if isinstance(values, list) and len(values) == 2 and isinstance(values[1], dict):  # spaCy
        values = {"text": values[0], "entities": values[1].get("entities")}
    if not isinstance(values, dict):
        raise RowFault("the row", f"is no object but {shown(values)}")
    if isinstance(values.get("data"), dict):
        return _label_studio(values, notes=notes, place=place)
    text = text_of(values.get("text", values.get("data")), "text")
    key = next((key for key in SPAN_KEYS if key in values), None)
    if key is None:
        raise RowFault("spans", f"there is none of {', '.join(SPAN_KEYS)}")
    if values[key] is None:
        return text, []
    if not isinstance(values[key], list):
        raise RowFault(key, f"is no list but {shown(values[key])}")
    return text, [_span(item, f"{key}[{number}]", text) for number, item in enumerate(values[key], start=1)]


def word_offsets(text: str, words: Words) -> Iterator[tuple[int, int]]:
    """Where each word begins and ends."""
    pattern = {"space": re.compile(r"\S+"), "character": re.compile(r"\S")}.get(words) or _punctuation()
    return (match.span() for match in pattern.finditer(text))


@cache
def _punctuation() -> re.Pattern[str]:
    # Vowel signs, diacritics and joiners belong to their word, though Python's \w leaves them out.
    marks = "".join(chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code)).startswith("M"))
    inner = rf"[^\W{_UNSPACED}{re.escape(marks)}]"
    letter = rf"(?:{inner}|[{re.escape(marks)}\u200c\u200d])"
    return re.compile(rf"[{_UNSPACED}]|{letter}+(?:['’]{letter}+)*|\S")


def _label_studio(values: dict[str, Any], *, notes: Notes, place: str) -> tuple[str, list[Span]]:
    texts = [(key, value) for key, value in values["data"].items() if isinstance(value, str)]
    if not texts:
        raise RowFault("data", f"holds no text but {shown(values['data'])}")
    text = text_of(values["data"].get("text", texts[0][1]), "data.text")
    done = values.get("annotations") or values.get("completions")
    kept = [a for a in done or () if isinstance(a, dict) and not a.get("was_cancelled")]
    if not kept:
        raise RowFault("annotations", "there is none that wasn't cancelled")
    if len(kept) > 1:
        notes.add("tasks with several annotations, of which the first is taken", place=place)
    results = kept[0].get("result")
    if not isinstance(results, list):
        raise RowFault("annotations.result", f"is no list but {shown(results)}")
    spans = [
        r.get("value")
        for r in results
        if isinstance(r, dict) and r.get("type", "labels") in ("labels", "hypertextlabels")
    ]
    return text, [_span(item, f"result[{number}]", text) for number, item in enumerate(spans, start=1)]


def _span(item: Any, field: str, text: str) -> Span:
    if isinstance(item, list | tuple) and len(item) == 3:
        start, end, label = item
        if isinstance(start, str):  # some write the label first
            label, start, end = item
    elif isinstance(item, dict):
        start = next((item[key] for key in _STARTS if key in item), None)
        end = next((item[key] for key in _ENDS if key in item), None)
        label = next((item[key] for key in ("label", "labels", "type", "entity_group") if key in item), None)
        label = label[0] if isinstance(label, list) and len(label) == 1 else label
    else:
        raise RowFault(field, f"is no span but {shown(item)}")
    for name, value in (("start", start), ("end", end)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise RowFault(f"{field}.{name}", f"is no whole number but {shown(value)}")
    if not isinstance(label, str) or not label.strip():
        raise RowFault(f"{field}.label", f"is no label but {shown(label)}")
    if not 0 <= start < end <= len(text):
        raise RowFault(field, f"{start}..{end} lies outside of the text of {len(text)} characters, or is empty")
    marked = item.get("text") if isinstance(item, dict) else None
    if isinstance(marked, str) and marked.strip() != text[start:end].strip():
        what = f"{start}..{end} is {shown(text[start:end], length=30)}, but the span says {shown(marked, length=30)}"
        raise RowFault(field, f"{what} (offsets in bytes or UTF-16 units?)")
    return start, end, label.strip()


def _checked(text: str, spans: Sequence[Span], *, notes: Notes, place: str) -> Iterator[Span]:
    """The spans in order, each once, without white space at their ends."""
    for start, end, label in sorted(set(spans)):
        inside = text[start:end]
        first, last = start + len(inside) - len(inside.lstrip()), end - (len(inside) - len(inside.rstrip()))
        if first >= last:
            raise RowFault("spans", f"span {start}..{end} ({label}) holds white space alone")
        if (first, last) != (start, end):
            notes.add("spans trimmed of white space at their ends", place=f"{place} {start}..{end}")
        yield first, last, label
