"""The layouts of a file's rows -> conversations. A row that isn't of its layout keeps its place and what is wrong."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.chat.conversation import Conversation, conversation_of, parsed, raw_text
from supertrainer.data.findings import Findings
from supertrainer.data.prepare.chat import (
    COMPLETION_NAMES,
    MESSAGE_NAMES,
    PROMPT_NAMES,
    alpaca_converter,
    first_of,
    messages_of,
)
from supertrainer.data.prepare.object_layout import object_layout
from supertrainer.data.prepare.record import Raw, RowFault, shown, text_of
from supertrainer.data.rows import Rows
from supertrainer.data.schema import ChatColumns, Layout
from supertrainer.data.tables import RawRows

SAMPLE = 200
_SENDERS = ("sender", "speaker", "author", "from", "role")
_USUAL = {"messages", "sharegpt", "alpaca", "prompt_completion"}
_ALPACA = ("instruction", "input", "output", "response", "history", "system")
# What a table that can leave columns unread has to read: all that tells a layout, and what the layouts take.
NAMES = (*MESSAGE_NAMES, *PROMPT_NAMES, *COMPLETION_NAMES, *_ALPACA, "rejected", "label", "text", "tools")

Values = Mapping[str, Any]
Convert = Callable[[Values], Conversation | None]


def wanted(columns: ChatColumns) -> list[str]:
    """The columns of a file that any layout takes."""
    return [*NAMES, *columns.named().values()]


def to_rows(raw: RawRows, *, layout: Layout, columns: ChatColumns, where: str, findings: Findings) -> Rows:
    """Reads the rows of a file as conversations.

    Returns:
        `messages` and `tools` as JSON texts (`messages` is None in a row without text), and `fault`: what is wrong with
        a row, empty where nothing is.

    Raises:
        DataError: a named column isn't there, or the layout can't be told or isn't there.
    """
    renamed = renamed_columns(raw, columns.named(), where=where)
    names = list(renamed)
    rows = [dict(zip(names, values, strict=True)) for values in zip(*renamed.values(), strict=True)]
    found, why = (layout, "dataset.layout")
    if layout == "auto":
        found, why = _named_layout(columns) or _layout(rows[:SAMPLE], raw, where=where)
    convert = _converter(found, rows[:SAMPLE], raw, where=where)
    findings.remark(f"Read as {found} ({why})", place=where)
    messages: list[Any] = []
    tools, faults = [], []
    for row in rows:
        fault, texts = "", ("[]", "[]")
        try:
            conversation = convert(row)
            if conversation is not None:
                texts = conversation.dump()
                text_of("".join(texts), "the row")
        except RowFault as error:
            conversation, fault = raw_text(""), f"{error.field} {error.what}"
        messages.append(None if conversation is None else texts[0])
        tools.append(texts[1])
        faults.append(fault)
    return Rows({"messages": messages, "tools": tools, "fault": faults}, raw.places)


def renamed_columns(raw: RawRows, named: Mapping[str, str], *, where: str) -> dict[str, Sequence[Any]]:
    """The columns with those that are named under our names.

    Raises:
        DataError: a named column isn't there.
    """
    gone = Findings()
    for key, name in named.items():
        if name not in raw.available:
            near = difflib.get_close_matches(name, raw.available, n=1, cutoff=0.4)
            gone.add_problem(
                f"{where} has no column {name!r} (dataset.columns.{key}). It has: {', '.join(raw.available)}.",
                fix=f"dataset.columns.{key}={near[0] if near else '<one of these>'}.",
            )
    gone.raise_if_any()
    theirs = set(named.values())
    kept = {name: values for name, values in raw.columns.items() if name not in theirs and name not in named}
    return {**kept, **{key: raw.columns[name] for key, name in named.items()}}


def _named_layout(columns: ChatColumns) -> tuple[Layout, str] | None:
    """The layout that the named columns mean; None where messages are named, or none."""
    of_columns: dict[str, Layout] = {
        "text": "text",
        "instruction": "alpaca",
        "output": "alpaca",
        "prompt": "prompt_completion",
        "completion": "prompt_completion",
    }
    named = columns.named()
    key = None if "messages" in named else next((key for key in of_columns if key in named), None)
    return None if key is None else (of_columns[key], f"dataset.columns.{key}")


def _layout(sample: Sequence[Values], raw: RawRows, *, where: str) -> tuple[Layout, str]:
    dense = [{key: value for key, value in row.items() if value is not None} for row in sample]
    found, why = object_layout(dense)
    talk = next((row[name] for row in dense for name in MESSAGE_NAMES if row.get(name)), None)
    if found in ("messages", "sharegpt") and isinstance(talk, list) and is_dialogue(talk):
        return "dialogue", "turns have no roles"
    if found in _USUAL:
        return found, why  # type: ignore[return-value]  # object_layout knows more of them
    if sum("text" in row for row in dense) > len(dense) / 2:
        return "text", "rows have a text"
    raise DataError(
        f"{where}: the layout can't be told from the columns {', '.join(raw.available)}.",
        why=f"they look like {found}; a conversation has one of {', '.join(MESSAGE_NAMES)}, or instruction and "
        "output, or prompt and completion; a raw text has text.",
        fix="dataset.layout and dataset.columns, such as layout=prompt_completion columns.prompt=question "
        "columns.completion=answer.",
    )


def is_dialogue(turns: Sequence[Any]) -> bool:
    """Whether turns are texts, lists of utterances, or have a sender who isn't a role."""
    first = turns[0] if turns else None
    return isinstance(first, str | list) or (isinstance(first, dict) and "role" not in first and "from" not in first)


def _converter(layout: Layout, sample: Sequence[Values], raw: RawRows, *, where: str) -> Convert:
    keys = list(dict.fromkeys(key for row in sample for key, value in row.items() if value is not None))
    match layout:
        case "messages" | "sharegpt" | "dialogue":
            name = first_of(MESSAGE_NAMES, keys)
            needed = {"messages": name}
            one = dialogue_row if layout == "dialogue" else messages_row
            convert: Convert = functools.partial(one, name=name or "", from_arrow=raw.from_arrow)
        case "alpaca":
            needed = {
                "instruction": first_of(("instruction",), keys),
                "output": first_of(("output", "response"), keys),
            }
            convert = alpaca_row
        case "prompt_completion":
            needed = {"prompt": first_of(PROMPT_NAMES, keys), "completion": first_of(COMPLETION_NAMES, keys)}
            names = {key: name or "" for key, name in needed.items()}
            convert = functools.partial(_prompt_completion, names=names, from_arrow=raw.from_arrow)
        case _:
            needed = {"text": first_of(("text",), keys)}
            convert = _text
    gone = Findings()
    for key, name in needed.items():
        if name is None:
            gone.add_problem(
                f"{where} has no column for {key} of dataset.layout={layout}. It has: {', '.join(raw.available)}.",
                fix=f"dataset.columns.{key}=<one of these>, or another dataset.layout.",
            )
    gone.raise_if_any()
    return convert


def messages_row(row: Values, *, name: str, from_arrow: bool) -> Conversation:
    """A row with a list of messages.

    Raises:
        RowFault: it is none; as the other layouts do.
    """
    talk = conversation_of(row.get(name), name, tools=row.get("tools"), from_arrow=from_arrow)
    return with_system(talk, row.get("system"))


def dialogue_row(row: Values, *, name: str, from_arrow: bool) -> Conversation:
    """A row with the turns of two people, the first of whom is the user."""
    turns = parsed(row.get(name), name)
    if not isinstance(turns, list) or not turns:
        raise RowFault(name, f"is no list of turns but {shown(turns)}")
    speakers: dict[Any, str] = {}
    messages: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        field = f"{name}[{number}]"
        said = turn if isinstance(turn, list) else [turn]
        for place, utterance in enumerate(said):
            text, sender = _utterance(utterance, f"{field}[{place}]" if said is turn else field, number)
            if sender not in speakers and len(speakers) == 2:
                raise RowFault(field, f"is of a third speaker, {shown(sender)}")
            role = speakers.setdefault(sender, "assistant" if speakers else "user")
            if not text.strip():
                continue
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += f"\n{text}"
            else:
                messages.append({"role": role, "content": text})
    return with_system(conversation_of(messages, name), row.get("system"))


def _utterance(value: Any, field: str, number: int) -> tuple[str, Any]:
    """What was said and by whom; the speakers of bare texts take turns."""
    if isinstance(value, dict):
        key = next((key for key in ("text", "content", "value") if key in value), "text")
        sender = next((value[name] for name in _SENDERS if value.get(name) is not None), number % 2)
        if not isinstance(sender, str | int):
            raise RowFault(field, f"has no sender but {shown(sender)}")
        return text_of(value.get(key), f"{field}.{key}"), sender
    return text_of(value, field), number % 2


def alpaca_row(row: Values) -> Conversation:
    """A row with instruction and output."""
    if not str(row.get("instruction") or "").strip():
        raise RowFault("instruction", "is empty")
    given = {key: value for key, value in row.items() if value is not None}
    [made] = alpaca_converter(as_chat=True)(Raw(given, "", 0, None, Path()))
    return conversation_of(made["messages"], "messages", tools=row.get("tools"))


def _prompt_completion(row: Values, *, names: Mapping[str, str], from_arrow: bool) -> Conversation:
    """The prompt's own answers aren't learnt, only the completion is."""
    prompt, completion = names["prompt"], names["completion"]
    first = prompt_side(row.get(prompt), prompt, role="user", from_arrow=from_arrow)
    second = prompt_side(row.get(completion), completion, role="assistant", from_arrow=from_arrow)
    for message in first:
        if message["role"] == "assistant":
            message["train"] = False
    tools = row.get("tools")
    listed = conversation_of(list(first), prompt, tools=tools, from_arrow=from_arrow).tools if tools else ()
    return with_system(Conversation((*first, *second), listed), row.get("system"))


def prompt_side(value: Any, field: str, *, role: str, from_arrow: bool) -> list[dict[str, Any]]:
    """A prompt or a completion, as messages: a text is one of `role`."""
    if isinstance(value, str):
        if not value.strip():
            raise RowFault(field, "is empty")
        return [{"role": role, "content": text_of(value, field)}]
    values = [value] if isinstance(value, dict) else value
    return list(conversation_of(values, field, from_arrow=from_arrow).messages)


def with_system(conversation: Conversation, system: Any) -> Conversation:
    """The system column goes before messages that have no system turn of their own."""
    if not isinstance(system, str) or not system.strip() or conversation.messages[0]["role"] == "system":
        return conversation
    turn = messages_of([{"role": "system", "content": system}], "system")
    return Conversation((*turn, *conversation.messages), conversation.tools)


def _text(row: Values) -> Conversation | None:
    value = row.get("text")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return raw_text(text_of(value, "text"))
