"""What the rows of a file ask of a model, read as the rows of training are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from supertrainer.data.chat.conversation import Conversation, conversation_of, parsed
from supertrainer.data.chat.layouts import (
    alpaca_row,
    dialogue_row,
    is_dialogue,
    messages_row,
    prompt_side,
    with_system,
)
from supertrainer.data.prepare.chat import MESSAGE_NAMES
from supertrainer.data.prepare.record import RowFault, shown

Form = Literal["messages", "prompt", "instruction"]
"""What a cell holds: a conversation; a text, or messages too; or Alpaca's instruction, with the columns beside it."""


@dataclass(frozen=True)
class AskedColumns:
    """Where a row says what it asks.

    Attributes:
        text: the column of the conversation, prompt or instruction.
        form: which of these it holds.
        system: the column of the system turn; None: none.
        tools: the column of the tools; None: none.
        from_arrow: nested values come from Arrow, whose objects have null fields.
    """

    text: str
    form: Form = "prompt"
    system: str | None = None
    tools: str | None = None
    from_arrow: bool = False


def usual_columns(available: Iterable[str]) -> list[tuple[str, Form]]:
    """The columns that may hold what is asked: of messages and prompts all that are there, else an instruction."""
    names = set(available)
    usual: list[tuple[str, Form]] = [*((name, "messages") for name in MESSAGE_NAMES), ("prompt", "prompt")]
    found = [pair for pair in usual if pair[0] in names]
    return found or ([("instruction", "instruction")] if "instruction" in names else [])


def asked_in_row(row: Mapping[str, Any], columns: AskedColumns, *, system: str | None = None) -> Conversation:
    """The conversation that a row asks to go on with.

    Args:
        row: name of a column -> its value.
        columns: which of them are read.
        system: a system turn for a row that has none of its own.

    Raises:
        RowFault: it isn't one, or ends with an answer; names the place in the row, such as `messages[3].role`.
    """
    name, from_arrow = columns.text, columns.from_arrow
    own = {} if columns.tools is None else {"tools": row.get(columns.tools)}
    match columns.form:
        case "messages":
            turns = parsed(row.get(name), name)
            read = dialogue_row if isinstance(turns, list) and is_dialogue(turns) else messages_row
            talk = read({name: turns, **own}, name=name, from_arrow=from_arrow)
        case "instruction":
            talk = alpaca_row({**row, **own, "output": "-", "system": None})
            talk = Conversation(talk.messages[:-1], talk.tools)
        case "prompt":
            messages = prompt_side(row.get(name), name, role="user", from_arrow=from_arrow)
            talk = conversation_of(messages, name, tools=own.get("tools"), from_arrow=from_arrow)
    told = None if columns.system is None else row.get(columns.system)
    if told is not None and not isinstance(told, str):
        raise RowFault(str(columns.system), f"is no text but {shown(told)}")
    talk = with_system(talk, told if told and told.strip() else system)
    require_question(talk, name)
    return talk


def require_question(talk: Conversation, field: str) -> None:
    """Refuses a conversation that ends with an answer.

    Raises:
        RowFault: it does; names the field.
    """
    if talk.messages[-1]["role"] == "assistant":
        raise RowFault(field, "ends with an answer, and nothing is left to answer; leave the last turn out")
