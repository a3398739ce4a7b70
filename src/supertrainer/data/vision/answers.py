"""What several people answered to the same question: the texts of a cell, and which of them is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from supertrainer.data.chat.conversation import parsed
from supertrainer.data.prepare.record import RowFault, shown, text_of

_KEYS = ("answer", "text")  # of an object that holds an answer: VQA's, SQuAD's


def one_answer(value: Any, field: str) -> str:
    """An answer as a text: numbers as they are written, yes and no for true and false.

    Raises:
        RowFault: it is missing, empty, or neither a text nor a number.
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    text = text_of(value, field)
    if not text.strip():
        raise RowFault(field, "is empty")
    return text


def all_answers(value: Any, field: str, *, listed: bool = False) -> tuple[str, ...]:
    """The answers in a cell, at least one, in their order.

    Args:
        value: one answer; or a list of answers or of objects such as `{"answer": "net", "answer_id": 1}`; or an object
            of lists, as `datasets` gives a sequence of objects.
        field: its column.
        listed: whether the cell holds several answers, so that a text may be a JSON list, as in a table of texts.

    Raises:
        RowFault: names the place in the list at which there is no answer.
    """
    if listed and isinstance(value, str) and value.lstrip().startswith("["):
        value = parsed(value, field)
    if isinstance(value, Mapping):
        key = _key(value, field)
        value, field = value[key], f"{field}.{key}"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return (one_answer(value, field),)
    if not value:
        raise RowFault(field, "is a list without an answer")
    return tuple(_item(item, f"{field}[{place}]") for place, item in enumerate(value))


def learnt_of(answers: Sequence[str]) -> str:
    """The answer that most people gave; of several the first."""
    return Counter(answers).most_common(1)[0][0]


def with_first(answers: Sequence[str], learnt: str) -> tuple[str, ...]:
    """The answers, and before the others the one that is learnt, where it is among them."""
    if learnt not in answers:
        return tuple(answers)
    place = list(answers).index(learnt)
    return (learnt, *answers[:place], *answers[place + 1 :])


def _item(item: Any, field: str) -> str:
    if isinstance(item, Mapping):
        key = _key(item, field)
        item, field = item[key], f"{field}.{key}"
    return one_answer(item, field)


def _key(value: Mapping[str, Any], field: str) -> str:
    key = next((key for key in _KEYS if key in value), None)
    if key is None:
        raise RowFault(field, f"has no {' or '.join(_KEYS)}: {shown(value)}")
    return key
