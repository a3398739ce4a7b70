"""Conversations -> the texts that a model reads, and a generation's prompt -> token ids."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import DataError
from supertrainer.data.chat.conversation import Conversation, Message
from supertrainer.data.chat.frames import framed, framed_numbers
from supertrainer.data.chat.template import template_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Span = tuple[int, int]


class CannotRender(ValueError):
    """A template refuses a conversation, or leaves out what it holds; says what."""


@dataclass(frozen=True)
class Rendered:
    """A text, and the characters of it that the template marks as the assistant's (empty without marks)."""

    text: str
    marked: tuple[Span, ...]


def render(
    messages: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    *,
    tools: Sequence[Any] = (),
    add_generation_prompt: bool = False,
    with_marks: bool = False,
) -> Rendered:
    """Renders a conversation with the tokenizer's template.

    Args:
        with_marks: finds the spans that the template marks with {% generation %}.

    Raises:
        CannotRender: the template refuses it, with the template's own words.
        ConfigError: the tokenizer has no template.
    """
    # A message keeps our mark `train` to itself.
    shown = [{key: value for key, value in message.items() if key != "train"} for message in messages]
    how = {"add_generation_prompt": add_generation_prompt, "return_assistant_tokens_mask": with_marks}
    calls = [call["function"] for message in shown for call in message.get("tool_calls", ()) if "function" in call]
    try:
        found = _rendered(shown, tokenizer, tools=tools, **how)
    except CannotRender:
        if not calls:
            raise
        with contextlib.suppress(CannotRender):
            return _rendered(_with_json_arguments(shown), tokenizer, tools=tools, **how)
        raise
    return _rendered(_with_json_arguments(shown), tokenizer, tools=tools, **how) if _as_python(calls, found) else found


def _rendered(
    messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase, *, tools: Sequence[Any], **how: bool
) -> Rendered:
    from jinja2.exceptions import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    template = template_text(tokenizer, tools=bool(tools))
    try:
        texts, marks = render_jinja_template(
            conversations=[list(messages)],
            tools=list(tools) or None,
            chat_template=template,
            **how,
            **tokenizer.special_tokens_map,
        )
    # Templates are programs: whatever Python raises in one is about this conversation.
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise CannotRender(str(error) or type(error).__name__) from None
    return Rendered(texts[0], tuple(tuple(span) for span in marks[0]) if marks else ())


def _with_json_arguments(messages: Sequence[Message]) -> list[Message]:
    """Messages whose calls have their arguments as a JSON text, as OpenAI gives them and some templates take them."""
    changed = []
    for message in messages:
        calls = [
            {**call, "function": {**call["function"], "arguments": _json(call["function"].get("arguments", {}))}}
            if "function" in call
            else call
            for call in message.get("tool_calls", ())
        ]
        changed.append({**message, "tool_calls": calls} if calls else message)
    return changed


def _as_python(calls: Sequence[Any], found: Rendered) -> bool:
    """Whether a template wrote the arguments of a call as Python would, which is no JSON."""
    given = [call.get("arguments") for call in calls]
    return any(repr(value) != _json(value) and repr(value) in found.text for value in given if value)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def require_whole(conversation: Conversation, text: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Checks that a template wrote what it may not leave out.

    Raises:
        CannotRender: messages, tools, calls, or the thoughts of the last answer aren't in the text.
    """
    names = [_name(tool) for tool in conversation.tools]
    calls = [call for message in conversation.messages for call in message.get("tool_calls", ())]
    for what, written in (("tools", names), ("calls of tools", [_name(call) for call in calls])):
        gone = next((name for name in written if name and name not in text), None)
        if gone is not None:
            raise CannotRender(f"it doesn't write {what}, such as {gone!r}")
    last = conversation.messages[-1]
    thoughts = last.get("reasoning_content", "") if last["role"] == "assistant" else ""
    if thoughts.strip() not in text:
        raise CannotRender("it doesn't write reasoning_content, the thoughts before the last answer")
    changed = changed_messages(conversation.messages, text)
    if changed:
        try:
            there = framed_numbers(render(framed(conversation.messages), tokenizer, tools=conversation.tools).text)
        except CannotRender:
            return  # it looks into the texts, and says nothing of these
        for number in changed:
            if number not in there:
                role = conversation.messages[number]["role"]
                raise CannotRender(
                    f"it leaves out messages[{number}], of {role}, in the text that it writes:\n{cut(text)}"
                )


def cut(text: str) -> str:
    """A text of a length that an error can show."""
    return text if len(text) <= 600 else f"{text[:400]} … {text[-200:]}"


def changed_messages(messages: Sequence[Message], text: str) -> list[int]:
    """The numbers of the messages whose words a template didn't write as they are, or not at all."""
    return [number for number, message in enumerate(messages) if any(part not in text for part in _parts(message))]


def _parts(message: Message) -> list[str]:
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return [text.strip() for text in texts]


def render_prompt(
    messages: Sequence[Message],
    tokenizer: PreTrainedTokenizerBase,
    *,
    tools: Sequence[Any] = (),
    change: Callable[[str], str] = str,
    adds_begin: bool = True,
) -> list[int]:
    """The token ids of a prompt, ending where the model's answer begins; with at most one token that begins a text.

    Training sees the same ids before an answer, and every engine is given these.

    Args:
        change: puts what stands for pictures into the text.
        adds_begin: whether the text gets the token that the tokenizer begins every text with.

    Raises:
        ConfigError: the tokenizer has no template.
        DataError: the template refuses the messages.
    """
    try:
        written = render(messages, tokenizer, tools=tools, add_generation_prompt=True).text
        require_whole(Conversation(tuple(messages), tuple(tools)), written, tokenizer)
        text = change(written)
    except CannotRender as error:
        raise DataError(
            f"the chat template refuses a prompt: {error}.", fix="other messages, or another template."
        ) from None
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    begin = own_begin(tokenizer) if adds_begin else None
    return [begin, *ids] if begin is not None and ids[:1] != [begin] else ids[surplus_begins(ids, tokenizer) :]


def own_begin(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token that a tokenizer puts before every text; None where it puts none there."""
    begin: int | None = tokenizer.bos_token_id
    first = tokenizer("a")["input_ids"][:1]
    return begin if begin is not None and first == [begin] else None


def surplus_begins(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase) -> int:
    """How many of the leading tokens that begin a text are too many: a template may write a second one."""
    count = 0
    while count + 1 < len(ids) and ids[count] == ids[count + 1] == tokenizer.bos_token_id:
        count += 1
    return count


def _name(value: Mapping[str, Any]) -> str:
    inner = value.get("function", value)
    return str(inner.get("name", "")) if isinstance(inner, Mapping) else ""
