"""Conversations: OpenAI messages, ShareGPT, Alpaca, prompts with completions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from supertrainer.data.prepare.labelled import object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault, shown, text_of

Turns = Literal["strict", "as_is"]
Message = dict[str, Any]
ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
MESSAGE_NAMES = ("messages", "conversations", "conversation", "dialog", "dialogue")
PROMPT_NAMES = ("prompt", "question", "query", "input", "instruction")
COMPLETION_NAMES = ("completion", "response", "answer", "output", "chosen")
_CALLS = ("tool_calls", "tool_call_id", "name")


def messages_of(values: Any, field: str) -> list[Message]:
    """A list of messages in OpenAI's form (role, content), ShareGPT's (from, value), or texts that take turns.

    Raises:
        RowFault: a message isn't one, has an unknown role or no text; names its place.
    """
    if not isinstance(values, list) or not values:
        raise RowFault(field, f"is no list of messages but {shown(values)}")
    return [_message(value, f"{field}[{number}]", number) for number, value in enumerate(values)]


def check_turns(messages: Sequence[Message], field: str) -> None:
    """Checks that user and assistant take turns, from a user to an assistant, system first if at all.

    Raises:
        RowFault: they don't; names the first message out of turn.
    """
    before = ""
    for number, message in enumerate(messages):
        role = message["role"]
        allowed = {"": ("system", "user"), "system": ("user",), "user": ("assistant",), "tool": ("assistant", "tool")}
        if role not in allowed.get(before, ("user", "tool")):
            where = f"after {before}" if before else "at the beginning"
            raise RowFault(f"{field}[{number}]", f"is of {role} {where} (--turns as_is takes it so)")
        before = role
    if before != "assistant":
        raise RowFault(
            f"{field}[{len(messages) - 1}]", f"is of {before}: no answer follows (--turns as_is takes it so)"
        )


def messages_converter(names: Sequence[str], *, turns: Turns) -> Callable[[Raw], list[Row]]:
    """Rows with a list of messages under the first of the names; a `system` key goes before them."""

    def convert(raw: Raw) -> list[Row]:
        values = {"messages": raw.values} if isinstance(raw.values, list) else object_of(raw)
        name = next((name for name in names if name in values), names[0])
        messages = messages_of(values.get(name), name)
        if isinstance(system := values.get("system"), str) and system.strip() and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": text_of(system, "system")})
        if turns == "strict":
            check_turns(messages, name)
        return [{"messages": messages}]

    return convert


def alpaca_converter(*, as_chat: bool) -> Callable[[Raw], list[Row]]:
    """instruction, input, output; `system` and `history` (pairs of earlier turns) where there are."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        prompt = alpaca_prompt(values)
        output = text_of(values.get("output", values.get("response")), "output")
        if not as_chat:
            if values.get("history") or values.get("system"):
                raise RowFault("history" if values.get("history") else "system", "has no place (--task chat has)")
            return [{"prompt": prompt, "completion": output}]
        messages = _system(values)
        for number, pair in enumerate(values.get("history") or ()):
            if not isinstance(pair, list) or len(pair) != 2:
                raise RowFault(f"history[{number}]", f"is no pair but {shown(pair)}")
            messages += [_user(text_of(pair[0], f"history[{number}]")), _answer(text_of(pair[1], f"history[{number}]"))]
        return [{"messages": [*messages, _user(prompt), _answer(output)]}]

    return convert


def prompt_converter(
    prompt: str, completion: str, *, conversational: bool, as_chat: bool
) -> Callable[[Raw], list[Row]]:
    """A prompt and its completion, both texts or both lists of messages."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        first = side(values.get(prompt), prompt, conversational=conversational, role="user")
        second = side(values.get(completion), completion, conversational=conversational, role="assistant")
        if not as_chat:
            return [{"prompt": first, "completion": second}]
        messages = [*first, *second] if conversational else [*_system(values), _user(first), _answer(second)]
        return [{"messages": messages}]

    return convert


def side(value: Any, field: str, *, conversational: bool, role: str) -> Any:
    """A prompt or an answer: a text, or messages where the rows are conversations (a text then becomes one)."""
    if not conversational:
        return text_of(value, field)
    if isinstance(value, str):
        return [{"role": role, "content": text_of(value, field)}]
    return messages_of([value] if isinstance(value, dict) else value, field)


def alpaca_prompt(values: Mapping[str, Any]) -> str:
    """The instruction, and below it the input where there is one."""
    instruction = text_of(values.get("instruction"), "instruction")
    more = values.get("input")
    return f"{instruction}\n\n{text_of(more, 'input')}" if more not in (None, "") else instruction


def first_of(names: Sequence[str], available: Sequence[str]) -> str | None:
    """The first of the names that is there."""
    return next((name for name in names if name in available), None)


def _message(value: Any, field: str, number: int) -> Message:
    if isinstance(value, str):
        return {"role": "assistant" if number % 2 else "user", "content": text_of(value, field)}
    if not isinstance(value, dict):
        raise RowFault(field, f"is no message but {shown(value)}")
    role = value.get("role", value.get("from"))
    if not isinstance(role, str) or role.lower() not in ROLES:
        raise RowFault(
            f"{field}.{'from' if 'from' in value else 'role'}", f"is {shown(role)}, none of {', '.join(ROLES)}"
        )
    key = next((key for key in ("content", "value", "text") if key in value), "content")
    content = value.get(key)
    calls = {name: value[name] for name in _CALLS if value.get(name) is not None}
    if content is None and "tool_calls" in calls:
        content = ""
    if isinstance(content, list):
        content = [_part(part, f"{field}.{key}[{place}]") for place, part in enumerate(content)]
        if all(part["type"] == "text" for part in content):
            content = "\n".join(part["text"] for part in content)
    else:
        content = text_of(content, f"{field}.{key}")
    return {"role": ROLES[role.lower()], "content": content, **calls}


def _part(part: Any, field: str) -> dict[str, str]:
    if not isinstance(part, dict) or part.get("type") not in ("text", "image"):
        raise RowFault(field, f"is neither a text nor an image but {shown(part)}")
    return {"type": "image"} if part["type"] == "image" else {"type": "text", "text": text_of(part.get("text"), field)}


def _system(values: Mapping[str, Any]) -> list[Message]:
    system = values.get("system")
    return [{"role": "system", "content": text_of(system, "system")}] if system else []


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _answer(text: str) -> Message:
    return {"role": "assistant", "content": text}
