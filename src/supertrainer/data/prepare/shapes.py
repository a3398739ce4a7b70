"""The columns of every task, what is in them, and the texts and labels inside a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from supertrainer.data.prepare.record import Row

Kind = Literal["text", "label", "labels", "number", "flag", "tokens", "tags", "messages", "images"]
TEXT_KINDS = ("text", "tokens", "messages")

# task -> its columns. A column with "?" may be missing from the source.
TASKS: Mapping[str, Mapping[str, Kind]] = {
    "sequence_classification": {"text": "text", "text_pair?": "text", "label": "label"},
    "multi_label": {"text": "text", "text_pair?": "text", "labels": "labels"},
    "regression": {"text": "text", "text_pair?": "text", "label": "number"},
    "token_classification": {"tokens": "tokens", "tags": "tags"},
    "text": {"text": "text"},
    "chat": {"messages": "messages"},
    "prompt_completion": {"prompt": "text", "completion": "text"},
    "preference": {"prompt": "text", "chosen": "text", "rejected": "text"},
    "unpaired_preference": {"prompt": "text", "completion": "text", "label": "flag"},
    "vision_chat": {"images": "images", "messages": "messages", "label?": "label"},
}
# Rows that are equal in these columns stay on one side of a split; elsewhere all columns that hold text.
UNITS: Mapping[str, tuple[str, ...]] = {
    "prompt_completion": ("prompt",),
    "preference": ("prompt",),
    "unpaired_preference": ("prompt",),
    "vision_chat": ("images",),
}


@dataclass(frozen=True)
class Shape:
    """The columns that are written: of the task, and `extra` ones that are kept as they are."""

    task: str
    columns: Mapping[str, Kind]
    extra: tuple[str, ...] = ()
    unit: tuple[str, ...] = field(default=())

    @property
    def target_kind(self) -> Kind | None:
        """Whether rows have labels, and of which kind; None for text that is its own target."""
        return next((kind for kind in self.columns.values() if kind in ("label", "labels", "number", "tags")), None)

    @property
    def can_conflict(self) -> bool:
        """Whether the same text with another target is a contradiction: it is for labels, not for answers."""
        return self.target_kind is not None and self.task != "vision_chat"


def shape_of(
    task: str, *, optional: tuple[str, ...] = (), conversational: bool = False, extra: tuple[str, ...] = ()
) -> Shape:
    """The shape of a task.

    Args:
        optional: the optional columns that the rows have.
        conversational: prompts and answers are lists of messages, not texts.
        extra: columns of the source that are kept beside those of the task.
    """
    columns: dict[str, Kind] = {}
    for name, kind in TASKS[task].items():
        if not name.endswith("?") or name[:-1] in optional:
            columns[name.removesuffix("?")] = "messages" if conversational and kind == "text" else kind
    unit = UNITS.get(task) or tuple(name for name, kind in columns.items() if kind in TEXT_KINDS)
    return Shape(task, columns, extra, unit)


def texts(row: Row, shape: Shape) -> Iterator[tuple[str, str]]:
    """Every text of a row with the column that it stands in; a list of words counts as one text."""
    for name, kind in shape.columns.items():
        if kind == "text":
            yield name, row[name]
        elif kind == "tokens":
            yield name, " ".join(row[name])
        elif kind == "messages":
            for message in row[name]:
                yield name, message_text(message)


def message_text(message: Mapping[str, Any]) -> str:
    """The text of a message whose content is a text or a list of parts."""
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content if "text" in part)


def with_texts(row: Row, shape: Shape, change: Callable[[str], str]) -> Row:
    """A copy of the row with every text (every word of a list) changed."""
    changed = dict(row)
    for name, kind in shape.columns.items():
        if kind == "text":
            changed[name] = change(row[name])
        elif kind == "tokens":
            changed[name] = [change(word) for word in row[name]]
        elif kind == "messages":
            changed[name] = [{**m, "content": _changed(m["content"], change)} for m in row[name]]
    return changed


def labels(row: Row, shape: Shape) -> tuple[str, ...]:
    """The labels of a row, each once: a class, several, or the entity types of its tags; none for other tasks."""
    for name, kind in shape.columns.items():
        if kind == "label":
            return (row[name],)
        if kind == "labels":
            return tuple(row[name])
        if kind == "tags":
            return tuple(dict.fromkeys(tag[2:] if tag[:2] in ("B-", "I-") else tag for tag in row[name] if tag != "O"))
    return ()


def _changed(content: Any, change: Callable[[str], str]) -> Any:
    if isinstance(content, str):
        return change(content)
    return [{**part, "text": change(part["text"])} if "text" in part else part for part in content]
