"""A conversation in the one form that everything below works on, and as the JSON text that a row keeps it in."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supertrainer.data.prepare.chat import messages_of
from supertrainer.data.prepare.record import RowFault, shown

Message = dict[str, Any]
RAW_TEXT = "text"  # the role of the only message of a raw text
_REASONING = ("reasoning_content", "thinking", "reasoning")
_MARKS = ("train", "weight")


@dataclass(frozen=True)
class Conversation:
    """Messages and tools.

    A message has role and content, and where there are: name, tool_calls, tool_call_id, reasoning_content, train. A raw
    text is one message of the role `text`.
    """

    messages: tuple[Message, ...]
    tools: tuple[Any, ...] = ()

    @property
    def is_text(self) -> bool:
        """Whether this is a raw text, which no template is for."""
        return self.messages[0]["role"] == RAW_TEXT

    @property
    def answers(self) -> list[int]:
        """The numbers of the assistant's messages."""
        return [number for number, message in enumerate(self.messages) if message["role"] == "assistant"]

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages before the last answer; of a raw text none."""
        return self.messages[: self.answers[-1]] if self.answers else ()

    @property
    def reference(self) -> Message | None:
        """The last answer; None where there is none."""
        return self.messages[self.answers[-1]] if self.answers else None

    @property
    def answer_text(self) -> str | None:
        """The text of the last answer; None where there is none, it calls tools, or nothing is asked before it."""
        answer = self.reference
        if answer is None or answer.get("tool_calls") or not self.prompt:
            return None
        return answer["content"] if isinstance(answer["content"], str) else None

    def dump(self) -> tuple[str, str]:
        """Messages and tools as JSON texts: they survive Arrow, whose structs would gain null fields."""
        return _json(self.messages), _json(self.tools)


def read_conversation(messages: str, tools: str = "[]") -> Conversation:
    """What `dump` wrote."""
    return Conversation(tuple(json.loads(messages)), tuple(json.loads(tools)))


def raw_text(text: str) -> Conversation:
    """A raw text."""
    return Conversation(({"role": RAW_TEXT, "content": text},))


def conversation_of(
    values: Any, field: str, *, tools: Any = None, from_arrow: bool = False, pictures: bool = False
) -> Conversation:
    """A row's messages, given as a list or a JSON text, in OpenAI's or ShareGPT's form.

    Args:
        from_arrow: nested values come from Arrow, where every object has the fields of all, null where it has none.
        pictures: messages that aren't answers may hold them: their content then is a list of parts, each
            `{"type": "image"}` or `{"type": "text", "text": …}`.

    Raises:
        RowFault: names the place in the row, such as `messages[3].role`.
    """
    values = parsed(values, field)
    listed = tuple(parsed(tools, "tools") or ())
    if from_arrow:
        values, listed = without_nulls(values), without_nulls(listed)
    found = messages_of(values, field)
    messages = []
    for number, (given, message) in enumerate(zip(values, found, strict=True)):
        messages.append(_message(given, message, f"{field}[{number}]", pictures=pictures))
    for number, tool in enumerate(listed):
        if not isinstance(tool, dict):
            raise RowFault(f"tools[{number}]", f"is no description of a tool but {shown(tool)}")
    return Conversation(tuple(messages), listed)


def parsed(value: Any, field: str) -> Any:
    """A list or object, also where it is written as a JSON text; other texts raise.

    Raises:
        RowFault: a text that is no JSON.
    """
    if not isinstance(value, str) or not value.strip():
        return None if isinstance(value, str) else value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RowFault(field, f"is a text that is no JSON ({str(error).partition(':')[0]}): {shown(value)}") from None


def text_in(message: Message) -> str:
    """The text of a message, between its pictures too."""
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _message(given: Any, message: Message, field: str, *, pictures: bool) -> Message:
    """A normalised message with what the normalisation leaves out: thoughts, marks, arguments of calls as objects."""
    if isinstance(message["content"], list) and (not pictures or message["role"] == "assistant"):
        why = "an answer is text" if pictures else "a language model can't read one"
        raise RowFault(f"{field}.content", f"holds a picture: {why}")
    given = given if isinstance(given, Mapping) else {}
    thoughts = next((given[name] for name in _REASONING if isinstance(given.get(name), str)), None)
    if thoughts:
        message["reasoning_content"] = thoughts
    if "tool_calls" in message:
        message["tool_calls"] = _calls(message["tool_calls"], f"{field}.tool_calls")
    if not message.get("tool_calls"):
        message.pop("tool_calls", None)
    has_more = thoughts or message.get("tool_calls")
    has_more = has_more or isinstance(message["content"], list)
    if message["role"] in ("user", "assistant") and not text_in(message).strip() and not has_more:
        raise RowFault(f"{field}.content", "is empty")
    marks = [name for name in _MARKS if given.get(name) is not None]
    for name in marks:
        if given[name] not in (0, 1):
            raise RowFault(f"{field}.{name}", f"is {shown(given[name])}, neither true nor false (or 1, 0)")
        if given[name] and message["role"] != "assistant":
            raise RowFault(f"{field}.{name}", f"marks a message of {message['role']}: only answers can be learnt")
        message["train"] = bool(given[name])
    return message


def _calls(calls: Any, field: str) -> list[Any]:
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise RowFault(field, f"is no list of calls but {shown(calls)}")
    return [_call(call, f"{field}[{number}]") for number, call in enumerate(calls)]


def _call(call: Any, field: str) -> dict[str, Any]:
    """A call whose arguments are an object, as templates write them; OpenAI gives them as a JSON text."""
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise RowFault(field, f"names no function: {shown(call)}")
    path = f"{field}.function.arguments" if "function" in call else f"{field}.arguments"
    arguments = parsed(inner.get("arguments"), path)
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise RowFault(path, f"is no object but {shown(arguments)}")
    function = {**inner, "arguments": dict(arguments)}
    return {**call, "function": function} if "function" in call else {"type": "function", "function": function}


def without_nulls(value: Any) -> Any:
    """A nested value without the null fields that Arrow gave its objects."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list | tuple) else value


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
