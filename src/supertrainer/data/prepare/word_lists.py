"""Rows that hold a list of words and a list of tags."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from supertrainer.data.prepare.labelled import object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault, shown, text_of
from supertrainer.data.prepare.tag_schemes import Scheme, to_iob2

TOKEN_NAMES = ("tokens", "words", "token")
TAG_NAMES = ("tags", "ner_tags", "labels", "pos_tags", "tag", "ner")


def named_tags(values: Any, names: Sequence[str] | None) -> list[str]:
    """The tags of a row as texts; numbers are places in `names`.

    Raises:
        RowFault: it is no list of tags, or a number has no name.
    """
    if not isinstance(values, list):
        raise RowFault("tags", f"is no list but {shown(values)}")
    return [_named(value, names, number) for number, value in enumerate(values, start=1)]


def words_converter(scheme: Scheme, *, tag_names: Sequence[str] | None = None) -> Callable[[Raw], list[Row]]:
    """Checks that there is a tag a word, and writes the tags in IOB2."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        words = values.get("tokens")
        if not isinstance(words, list):
            raise RowFault("tokens", f"is no list but {shown(words)}")
        tags = named_tags(values.get("tags"), tag_names)
        if len(words) != len(tags):
            raise RowFault("tags", f"there are {len(tags)} for {len(words)} words")
        for number, word in enumerate(words, start=1):
            if not text_of(word, f"tokens[{number}]").strip():
                raise RowFault(f"tokens[{number}]", "is empty")
        return [{"tokens": list(words), "tags": to_iob2(tags, scheme)}]

    return convert


def _named(value: Any, names: Sequence[str] | None, number: int) -> str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise RowFault(f"tags[{number}]", f"is no tag but {shown(value)}")
    if names is None:
        raise RowFault(f"tags[{number}]", f"is the number {value}, and no one said what it stands for (--tag-names)")
    if not 0 <= value < len(names):
        raise RowFault(f"tags[{number}]", f"is {value}, and --tag-names has {len(names)} names")
    return names[value]
