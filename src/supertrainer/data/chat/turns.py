"""The turns of a conversation as a text to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def as_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text itself where there is one turn, else each behind its role; nothing where there is none."""
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)
