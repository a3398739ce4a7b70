"""The layouts of a file's rows -> conversations with places for pictures, and the pictures that belong there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.chat.conversation import Conversation, conversation_of, parsed, raw_text, without_nulls
from supertrainer.data.chat.layouts import renamed_columns, with_system
from supertrainer.data.findings import Findings
from supertrainer.data.images import PictureFault
from supertrainer.data.mllm_schema import MllmDatasetConfig, PictureLayout
from supertrainer.data.prepare.chat import MESSAGE_NAMES, first_of
from supertrainer.data.prepare.pictures import CAPTION_NAMES, IMAGE_NAMES, MARKER
from supertrainer.data.prepare.record import RowFault, shown, text_of
from supertrainer.data.rows import Rows
from supertrainer.data.tables import RawRows
from supertrainer.data.vision.answers import all_answers, learnt_of, with_first
from supertrainer.data.vision.pictures import PictureReader, PictureStore

PICTURE_NAMES = (*IMAGE_NAMES, "picture", "pictures", "image_file")
ALL_ANSWERS = "answers"
ANSWER_NAMES = ("answer", "multiple_choice_answer", ALL_ANSWERS, "label")
IMAGE_PART = {"type": "image"}
OTHER_TYPE = "other"
_OPEN_AI = {"image_url": "image", "input_image": "image", "input_text": "text"}

Values = Mapping[str, Any]
Parts = list[dict[str, Any]]


@dataclass(frozen=True)
class Talk:
    """The messages of a row in OpenAI's form, what they are called, the pictures that their own parts name, and what
    several people answered.
    """

    messages: list[Any]
    field: str = "question"
    inline: tuple[str, ...] = ()
    references: tuple[str, ...] = ()


Convert = Callable[[Values, PictureReader], Talk]


def wanted(config: MllmDatasetConfig) -> list[str]:
    """The columns of a file that any layout takes."""
    usual = (*PICTURE_NAMES, *MESSAGE_NAMES, *ANSWER_NAMES, *CAPTION_NAMES)
    return [*usual, "question", "question_type", "system", "tools", *config.columns.named().values()]


def to_rows(raw: RawRows, *, config: MllmDatasetConfig, store: PictureStore, where: str, findings: Findings) -> Rows:
    """Reads the rows of a file as conversations with pictures.

    Returns:
        `messages` and `tools` as JSON texts; `pictures`, the references of each row, and `sizes`, their widths and
        heights one after the other; `question_type`, empty where there is none; `identity`, a text that tells the
        row's pictures from others; `references`, what several people answered, empty where
        there is one answer; `fault` and `picture_fault`, what is wrong with a row, empty where nothing is.

    Raises:
        DataError: a named column isn't there, or the layout can't be told.
    """
    columns = _named_classes(raw, config.columns.named(), where=where)
    name = "images" if config.columns.images else first_of(PICTURE_NAMES, list(columns))
    cells = columns.pop(name, None) if name else None
    layout, why = _layout(config, columns, pictures=cells is not None, raw=raw, where=where)
    findings.remark(f"Read as {layout} ({why})", place=where)
    convert = _converter(layout, config, list(columns), raw)
    root = raw.folder if config.image_root is None else Path(config.image_root).expanduser()
    reader = store.reader(cells, root=root, pattern=config.image_pattern)
    field = config.columns.images or name or "images"
    found: dict[str, list[Any]] = {key: [] for key in ("messages", "tools", "pictures", "sizes", "question_type")}
    found |= {"identity": [], "references": [], "fault": [], "picture_fault": []}
    for number in range(len(raw.places)):
        row = {key: values[number] for key, values in columns.items()}
        made: dict[str, Any] = {"pictures": [], "sizes": [], "fault": "", "picture_fault": "", "identity": "none"}
        made["references"] = []
        conversation = raw_text("")
        try:
            talk = convert(row, reader)
            given = [] if cells is None else reader.of_column(cells[number], field, number)
            made["pictures"] = of_row(talk, given, field=field)
            made["references"] = list(talk.references)
            first = layout != "messages" or config.without_places == "first"
            conversation = placed(talk, row, made["pictures"], field=field, first=first, from_arrow=raw.from_arrow)
        except RowFault as error:
            made["fault"] = f"{error.field} {error.what}"
        if not made["fault"]:
            made |= _inspected(made["pictures"], field, store)
        made["messages"], made["tools"] = conversation.dump()
        made["question_type"] = "" if made["fault"] else _question_type(row, conversation, config)
        for key, values in found.items():
            values.append(made[key])
    return Rows(found, raw.places)


def _named_classes(raw: RawRows, named: Mapping[str, str], *, where: str) -> dict[str, Sequence[Any]]:
    """The columns under our names, with the names of classes in place of their ids."""
    columns = renamed_columns(raw, named, where=where)
    for key, values in columns.items():
        names = raw.class_names.get(named.get(key, key))
        if names is not None:
            columns[key] = [
                names[value] if isinstance(value, int) and 0 <= value < len(names) else value for value in values
            ]
    return columns


def _layout(
    config: MllmDatasetConfig, columns: Mapping[str, Any], *, pictures: bool, raw: RawRows, where: str
) -> tuple[PictureLayout, str]:
    if config.layout != "auto":
        return config.layout, "dataset.layout"
    named = config.columns.named()
    if "messages" in named or (talk := first_of(MESSAGE_NAMES, list(columns))):
        return "messages", f"column {named.get('messages') or talk}"
    if "question" in columns and ("answer" in named or first_of(ANSWER_NAMES, list(columns))):
        return "question_answer", "columns question and answer"
    if pictures and ("caption" in named or first_of(CAPTION_NAMES, list(columns))):
        return "caption", "pictures with a text"
    raise DataError(
        f"{where}: the layout can't be told from the columns {', '.join(raw.available)}.",
        why=f"a conversation has one of {', '.join(MESSAGE_NAMES)}, a question has an answer, a caption has a picture.",
        fix="dataset.layout and dataset.columns, such as layout=question_answer columns.question=q columns.answer=a.",
    )


def _converter(layout: PictureLayout, config: MllmDatasetConfig, keys: Sequence[str], raw: RawRows) -> Convert:
    named = config.columns.named()

    def column(key: str, names: Sequence[str]) -> str:
        found = key if key in named else first_of(names, keys)
        if found is None:
            raise DataError(
                f"there is no column for {key} of dataset.layout={layout}. There are: {', '.join(raw.available)}.",
                fix=f"dataset.columns.{key}=<one of these>, or another dataset.layout.",
            )
        return found

    if layout == "messages":
        return functools.partial(talk_of, name=column("messages", MESSAGE_NAMES), from_arrow=raw.from_arrow)
    if layout == "caption":
        caption = column("caption", CAPTION_NAMES)
        return lambda row, reader: _asked(config.question, row, learnt=caption, several=None)
    question, answer = column("question", ("question",)), column("answer", ANSWER_NAMES)
    several = ALL_ANSWERS if ALL_ANSWERS in keys and answer != ALL_ANSWERS else None
    return lambda row, reader: _asked(text_of(row.get(question), question), row, learnt=answer, several=several)


def _asked(question: str, row: Values, *, learnt: str, several: str | None) -> Talk:
    """A question about all pictures, which go before it unless it has marks, and its answer.

    Args:
        learnt: the column of the answer; of a list the answer that most people gave.
        several: the column of what several people answered, where it is another one; an empty cell says nothing.
    """
    if not question.strip():
        raise RowFault("question", "is empty")
    given = row.get(several) if several is not None else None
    has_several = given is not None and given != ""
    answers = all_answers(given, several or learnt, listed=True) if has_several else ()
    if not answers or row.get(learnt) is not None:
        own = all_answers(row.get(learnt), learnt, listed=learnt == ALL_ANSWERS)
        answer, answers = learnt_of(own), answers or own
    else:
        answer = learnt_of(answers)
    messages = [{"role": "user", "content": split_marks(question)}, {"role": "assistant", "content": answer}]
    return Talk(messages, references=with_first(answers, answer) if len(answers) > 1 else ())


def talk_of(row: Values, reader: PictureReader, *, name: str, from_arrow: bool) -> Talk:
    """The messages of a row's cell, and the pictures that their parts name.

    Raises:
        RowFault: they aren't messages, or some of their pictures aren't named.
    """
    values = parsed(row.get(name), name)
    values = without_nulls(values) if from_arrow else values
    if not isinstance(values, list):
        return Talk(values, name)  # told by who reads messages
    has_parts = any(
        isinstance(part, Mapping) and part.get("type") in ("image", *_OPEN_AI)
        for message in values
        if isinstance(message, Mapping) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
    messages: list[Any] = []
    inline: list[str | None] = []
    for number, message in enumerate(values):
        key = next((key for key in ("content", "value", "text") if isinstance(message, Mapping) and key in message), "")
        content = message[key] if key else None
        if isinstance(content, list):
            field = f"{name}[{number}].{key}"
            parts = [_part(part, f"{field}[{place}]", reader) for place, part in enumerate(content)]
            inline += [reference for part, reference in parts if part == IMAGE_PART]
            message = {**message, key: [part for part, _ in parts]}
        elif isinstance(content, str) and MARKER in content and not has_parts:
            message = {**message, key: split_marks(content)}
        messages.append(message)
    named = [reference for reference in inline if reference is not None]
    if named and len(named) < len(inline):
        raise RowFault(name, f"has {len(inline)} pictures in its parts, and only {len(named)} say which")
    return Talk(messages, name, tuple(named))


def of_row(talk: Talk, given: Sequence[str], *, field: str) -> list[str]:
    """The references of a row's pictures: those that its messages name, or those `given` in the columns of `field`."""
    if talk.inline and given and len(talk.inline) != len(given):
        told = f"names {len(talk.inline)} pictures in its parts, and {field} holds {len(given)}: which do you mean?"
        raise RowFault(talk.field, told)
    return list(talk.inline) or list(given)


def _part(part: Any, field: str, reader: PictureReader) -> tuple[Any, str | None]:
    """A part without the picture that it names, and that picture's reference."""
    if isinstance(part, str):
        return {"type": "text", "text": part}, None
    if not isinstance(part, Mapping):
        return part, None
    kind = _OPEN_AI.get(part.get("type", ""), part.get("type"))
    if kind != "image":
        return {**part, "type": kind}, None
    named = {key: value for key, value in part.items() if key != "type" and value is not None}
    return dict(IMAGE_PART), reader.of_value(named, field) if named else None


def split_marks(text: str) -> str | Parts:
    """A text with <image> where pictures stand, in parts; the line breaks around a mark belong to it."""
    if MARKER not in text:
        return text
    parts: Parts = []
    for number, piece in enumerate(text.split(MARKER)):
        parts += [dict(IMAGE_PART)] if number else []
        parts += [{"type": "text", "text": piece.strip("\n")}] if piece.strip() else []
    return parts


def placed(
    talk: Talk, row: Values, pictures: Sequence[str], *, field: str, first: bool, from_arrow: bool
) -> Conversation:
    """The conversation, with a place for each picture.

    Args:
        field: the column of the pictures.
        first: where nothing says where they stand, they go before the first question.
    """
    found = conversation_of(talk.messages, talk.field, tools=row.get("tools"), from_arrow=from_arrow, pictures=True)
    found = with_system(found, row.get("system"))
    places = sum(part == IMAGE_PART for message in found.messages for part in _parts(message["content"]))
    if not places and pictures and first:
        number = next((number for number, message in enumerate(found.messages) if message["role"] == "user"), 0)
        messages = list(found.messages)
        content = [*(dict(IMAGE_PART) for _ in pictures), *_parts(messages[number]["content"])]
        messages[number] = {**messages[number], "content": content}
        return Conversation(tuple(messages), found.tools)
    if places != len(pictures):
        hint = "" if places else "; dataset.without_places=first puts them first"
        many = "picture" if len(pictures) == 1 else "pictures"
        raise RowFault(
            talk.field,
            f"says of {places} places where a picture stands, and {field} holds {len(pictures)} {many}{hint}",
        )
    return found


def _parts(content: Any) -> Parts:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _inspected(pictures: Sequence[str], field: str, store: PictureStore) -> dict[str, Any]:
    """Sizes and identity of a row's pictures, or what is wrong with one."""
    sizes: list[int] = []
    digests: list[str] = []
    for place, reference in enumerate(pictures):
        try:
            facts = store.facts(reference)
        except PictureFault as error:
            name = store.describe(reference)
            return {"picture_fault": f"{field}[{place}]{' ' * bool(name)}{name} {error}"}
        sizes += [facts.width, facts.height]
        digests.append(facts.digest)
    return {"sizes": sizes, "identity": " ".join(digests) or "none"}


def _question_type(row: Values, conversation: Conversation, config: MllmDatasetConfig) -> str:
    if config.answer_types is not None:
        answer = (conversation.answer_text or "").strip().lower()
        return next((name for name, answers in config.answer_types.items() if answer in answers), OTHER_TYPE)
    value = row.get("question_type")
    if value is None:
        return ""
    return value if isinstance(value, str) else shown(value)
