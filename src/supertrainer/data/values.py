"""One cell of a file -> a text, words, a label, labels, tags or a number; nothing is guessed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

UNREADABLE = object()


def as_text(value: Any) -> Any:
    """A text as it is, None where it is missing (null, NaN), UNREADABLE for a number, a list or broken Unicode."""
    if isinstance(value, str):
        return value if value.isascii() or _is_unicode(value) else UNREADABLE
    return None if _is_missing(value) else UNREADABLE


def as_label(value: Any, names: Sequence[str] | None) -> Any:
    """A label's text: `7` and `7.0` are "7", true is "true"; None where it is missing, UNREADABLE for 0.5 or a list.

    With `names` (of a `datasets.ClassLabel`) a number is the id of a name, and -1 stands for none.
    """
    if _is_missing(value):
        return None
    if isinstance(value, str):
        return None if not value.strip() else as_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        return UNREADABLE
    if names is None:
        return str(value)
    return None if value == -1 else names[value] if 0 <= value < len(names) else UNREADABLE


def as_words(value: Any) -> Any:
    """A list of words: given so, or a text with spaces between them. UNREADABLE where a word is no text."""
    if isinstance(value, str):
        return value.split() if as_text(value) is not UNREADABLE else UNREADABLE
    if isinstance(value, list | tuple):
        return list(value) if all(isinstance(word, str) and _is_unicode(word) for word in value) else UNREADABLE
    return None if _is_missing(value) else UNREADABLE


def as_tags(value: Any, names: Sequence[str] | None) -> Any:
    """A list of tags, one for every word: given so (as names or ids), or a text with spaces between them."""
    items = value.split() if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        return None if _is_missing(value) else UNREADABLE
    tags = [as_label(item, names) for item in items]
    return UNREADABLE if any(tag is None or tag is UNREADABLE for tag in tags) else tags


def as_labels(value: Any, names: Sequence[str] | None, *, separator: str) -> Any:
    """The labels of a row, each once, in their order: a list, or a text with a separator between. [] is no label.

    None where it is missing (null); an empty text is a row to which no label applies.
    """
    if isinstance(value, str):
        items: Sequence[Any] = [item.strip() for item in value.split(separator) if item.strip()]
    elif isinstance(value, list | tuple):
        items = value
    else:
        return None if _is_missing(value) else as_labels([value], names, separator=separator)
    labels = [as_label(item, names) for item in items]
    if any(label is None or label is UNREADABLE for label in labels):
        return UNREADABLE
    return list(dict.fromkeys(labels))


def as_number(value: Any) -> Any:
    """A finite number, also one written as text; None where it is missing (null, NaN, an empty text)."""
    if _is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return UNREADABLE
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return UNREADABLE
    return number if math.isfinite(number) else UNREADABLE


def names_in(label: Any) -> Sequence[str]:
    """The label names in a row's label: of one label itself, of a list its items."""
    if label is None:
        return ()
    return label if isinstance(label, list) else (label,)


def is_blank(value: Any) -> bool:
    """Whether nothing is there: a missing value, white space, or a list of words or tags with nothing in it."""
    if value is None:
        return True
    if isinstance(value, str):
        return not value.strip()
    return isinstance(value, list) and not any(item.strip() for item in value)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell and nothing can write
        return False
    return True
