"""The turns of a conversation: what asks, what answers, and how it reads as a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def split_answer(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str | None]:
    """What stands before the last answer, and this answer; of a conversation without one all of it, and None."""
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not places or places[-1] == 0 or not isinstance(messages[places[-1]].get("content"), str):
        return list(messages), None
    return list(messages[: places[-1]]), messages[places[-1]]["content"]


def as_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Turns to read: the text itself where there is one, else each behind its role."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
