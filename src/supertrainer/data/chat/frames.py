"""Frames around the texts of messages, of characters that no text has: they show where a template writes each one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from supertrainer.data.chat.conversation import Message

OPEN, SHUT, STOP = "\ue0f0", "\ue0f1", "\ue0f2"
FRAME = re.compile(f"([{OPEN}{SHUT}])(\\d+){STOP}")
"""One side of a frame: which side it is, and the number of its message."""


def framed(messages: Sequence[Message]) -> list[Message]:
    """Messages with frames around their texts."""
    return [_framed(message, number) for number, message in enumerate(messages)]


def framed_numbers(text: str) -> set[int]:
    """The numbers of the messages that a text has a side of a frame of."""
    return {int(frame[2]) for frame in FRAME.finditer(text)}


def _framed(message: Message, number: int) -> Message:
    """The message with frames around its text, inside the white space that a template may trim.

    Of several parts the first text is opened; the last part is shut if it is a text, else the message has no end here.
    """
    content = message["content"]
    if isinstance(content, str):
        return (
            {**message, "content": _marked_text(content, number, open_=True, shut=True)} if content.strip() else message
        )
    texts = [place for place, part in enumerate(content) if part["type"] == "text" and part["text"].strip()]
    if not texts:
        return message
    parts = list(content)
    for place in {texts[0], texts[-1]}:
        shut = place == texts[-1] == len(parts) - 1
        text = _marked_text(parts[place]["text"], number, open_=place == texts[0], shut=shut)
        parts[place] = {**parts[place], "text": text}
    return {**message, "content": parts}


def _marked_text(text: str, number: int, *, open_: bool, shut: bool) -> str:
    core = text.strip()
    lead, trail = text[: text.index(core)], text[len(text.rstrip()) :]
    before = f"{OPEN}{number}{STOP}" if open_ else ""
    after = f"{SHUT}{number}{STOP}" if shut else ""
    return f"{lead}{before}{core}{after}{trail}"
