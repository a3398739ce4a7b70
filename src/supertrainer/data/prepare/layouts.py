"""What each layout is read and converted by."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.prepare import chat, pictures, preference
from supertrainer.data.prepare.class_files import convert_class_row, read_class_files, read_class_folders
from supertrainer.data.prepare.columns import choose_text, rename_columns
from supertrainer.data.prepare.conll import detect_columns, read_conll
from supertrainer.data.prepare.containers import Reader
from supertrainer.data.prepare.detection import SAMPLE_LINES, Detected
from supertrainer.data.prepare.fasttext import convert_fasttext, read_fasttext
from supertrainer.data.prepare.labelled import (
    choose_comma,
    choose_separator,
    columns_converter,
    infer_task,
    label_converter,
    labels_converter,
    number_converter,
    object_of,
    require_labels,
    text_converter,
)
from supertrainer.data.prepare.object_layout import KNOWN
from supertrainer.data.prepare.options import PrepareOptions
from supertrainer.data.prepare.picture_folders import read_picture_folders
from supertrainer.data.prepare.plain_text import read_text
from supertrainer.data.prepare.record import Notes, Raw, Row, RowFault, text_of
from supertrainer.data.prepare.shapes import Shape, shape_of
from supertrainer.data.prepare.spans import spans_converter
from supertrainer.data.prepare.tag_schemes import detect_scheme
from supertrainer.data.prepare.word_lists import TAG_NAMES, TOKEN_NAMES, named_tags, words_converter

SAMPLE_SENTENCES = 2000
Convert = Callable[[Raw], list[Row]]
# layout -> the tasks that it can be prepared for, the usual one first.
TASKS_OF: Mapping[str, tuple[str, ...]] = {
    "labelled": ("sequence_classification", "multi_label", "regression", "text"),
    "fasttext": ("sequence_classification", "multi_label", "text"),
    "class_files": ("sequence_classification", "text"),
    "class_folders": ("sequence_classification", "text"),
    "text": ("text",),
    "conll": ("token_classification",),
    "tokens": ("token_classification",),
    "spans": ("token_classification",),
    "messages": ("chat",),
    "sharegpt": ("chat",),
    "alpaca": ("chat", "prompt_completion"),
    "prompt_completion": ("prompt_completion", "chat"),
    "preference": ("preference",),
    "unpaired_preference": ("unpaired_preference",),
    "picture_folders": ("vision_chat",),
    "picture_captions": ("vision_chat",),
    "picture_questions": ("vision_chat",),
    "llava": ("vision_chat",),
}


@dataclass(frozen=True)
class Plan:
    """How a source becomes rows: the stream of raw rows, the converter, the columns that come out, and why so."""

    rows: Callable[[], Iterator[Raw]]
    convert: Convert
    shape: Shape
    why: tuple[str, ...]


def plan_layout(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    """Chooses reader, converter and columns.

    Raises:
        ConfigError: the layout doesn't fit the task that was said.
        DataError: it can't be told which columns hold what.
    """
    layout, tasks = detected.layout, TASKS_OF[detected.layout]
    if options.task is not None and options.task not in tasks:
        raise ConfigError(
            f"--task {options.task}: the layout {layout} holds {' or '.join(tasks)} ({detected.why}).",
            fix=f"--task {tasks[0]}, or --from with another layout.",
        )
    plan = _PLANS[layout](detected, options, reader, notes)
    return replace(plan, shape=replace(plan.shape, extra=options.keep))


def _labelled(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    sample = [row for row in detected.sample if isinstance(row, dict)]
    needs = {"text": False, "sequence_classification": True, "regression": True}.get(options.task or "")
    if options.label_columns:
        needs = False
    choice = choose_text(sample, labelled=True if options.task == "multi_label" and needs is None else needs)
    label = choice.columns.get("label")
    values = [row.get(label) for row in sample] if label else []
    task, why = (options.task, "as said") if options.task else infer_task(values, label=label)
    if options.label_columns:
        task, why = "multi_label", f"a column each: {', '.join(options.label_columns)}"
    told = [f"columns {choice.why}", f"task {task}: {why}"]
    texts = text_converter(choice.columns)
    target: tuple[str, Callable[[Mapping[str, Any]], Any]] | None = None
    if options.label_columns:
        target = "labels", columns_converter(options.label_columns)
    elif task == "multi_label":
        separator, reason = choose_separator(values)
        if options.label_separator:
            separator, reason = options.label_separator, f"labels are divided by {options.label_separator!r}, as said"
        told.append(reason)
        target = "labels", labels_converter(require_labels(choice.columns, task=task), separator=separator)
    elif task == "regression":
        comma, reason = choose_comma(values, options.decimal)
        told.append(reason)
        target = "label", number_converter(require_labels(choice.columns, task=task), comma=comma)
    elif task == "sequence_classification":
        target = "label", label_converter(require_labels(choice.columns, task=task))

    def convert(raw: Raw) -> list[Row]:
        row = texts(raw)
        return [row if target is None else {**row, target[0]: target[1](object_of(raw))}]

    optional = ("text_pair",) if "text_pair" in choice.columns and task != "text" else ()
    if task == "text":
        texts = text_converter({"text": choice.columns["text"]})
    return Plan(_rows(detected, options, reader), convert, shape_of(task, optional=optional), tuple(told))


def _fasttext(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    head = list(itertools.islice(read_fasttext(detected.files, reader), SAMPLE_LINES))
    several = any(len(raw.values["labels"]) > 1 for raw in head if isinstance(raw.values, dict))
    task = options.task or ("multi_label" if several else "sequence_classification")
    why = f"task {task}: {'a line has' if several else 'no line has'} several labels"
    return Plan(lambda: read_fasttext(detected.files, reader), convert_fasttext(task), shape_of(task), (why,))


def _classes(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    read = read_class_files if detected.layout == "class_files" else read_class_folders
    task = options.task or "sequence_classification"
    convert: Convert = convert_class_row if task == "sequence_classification" else _only_text
    return Plan(lambda: read(detected.files, reader), convert, shape_of(task), ())


def _only_text(raw: Raw) -> list[Row]:
    return [{"text": text_of(object_of(raw).get("text"), "text")}]


def _text(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    unit = options.text_unit or "line"
    why = f"a row a {unit}" + ("" if options.text_unit else " (--text-unit paragraph or file divides otherwise)")
    return Plan(lambda: read_text(detected.files, reader, unit=unit), _only_text, shape_of("text"), (why,))


def _conll(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    with reader.lines(detected.files[0], newline=None) as text:
        lines = [line.rstrip("\n") for line in itertools.islice(text, SAMPLE_LINES)]
    found = detect_columns(lines, word=options.word_column, tag=options.tag_column)
    if found is None:
        raise DataError(
            f"{detected.files[0].name}: the lines don't have the same number of columns, two or more.",
            why="in the layout conll a line is a word with its tags, and blank lines stand between sentences.",
            fix="another --from, or mend the file.",
        )
    format, reason = found

    def rows() -> Iterator[Raw]:
        return read_conll(detected.files, reader, format)

    head = (raw.values for raw in itertools.islice(rows(), SAMPLE_SENTENCES))
    tags = [values["tags"] for values in head if isinstance(values, dict)]
    scheme, why = (options.scheme, "as said") if options.scheme else detect_scheme(tags)
    told = (reason, f"tags in {scheme}: {why}")
    return Plan(rows, words_converter(scheme), shape_of("token_classification"), told)


def _tokens(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    keys = list(dict.fromkeys(key for row in detected.sample if isinstance(row, dict) for key in row))
    tokens, tags = chat.first_of(TOKEN_NAMES, keys) or "tokens", chat.first_of(TAG_NAMES, keys) or "tags"
    found: list[list[str]] = []
    for row in detected.sample:
        try:
            found.append(named_tags(row.get(tags), options.tag_names))
        except (RowFault, AttributeError):
            continue  # told when the row is read
    scheme, why = (options.scheme, "as said") if options.scheme else detect_scheme(found)
    named = replace(options, columns={"tokens": tokens, "tags": tags, **options.columns})
    told = (f"words in {tokens!r}, tags in {tags!r}", f"tags in {scheme}: {why}")
    convert = words_converter(scheme, tag_names=options.tag_names)
    return Plan(_rows(detected, named, reader), convert, shape_of("token_classification"), told)


def _spans(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    convert = spans_converter(words=options.words, misaligned=options.misaligned, notes=notes)
    told = (f"words divided by {options.words}; a span that cuts a word: {options.misaligned}",)
    return Plan(_rows(detected, options, reader), convert, shape_of("token_classification"), told)


def _messages(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    convert = chat.messages_converter(chat.MESSAGE_NAMES, turns=options.turns)
    return Plan(_rows(detected, options, reader), convert, shape_of("chat"), ())


def _alpaca(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    task = options.task or "chat"
    convert = chat.alpaca_converter(as_chat=task == "chat")
    return Plan(_rows(detected, options, reader), convert, shape_of(task), (f"task {task}",))


def _prompt_completion(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    sample = [row for row in detected.sample if isinstance(row, dict)]
    keys = list(dict.fromkeys(key for row in sample for key in row))
    prompt = chat.first_of(chat.PROMPT_NAMES, keys) or "prompt"
    completion = chat.first_of(chat.COMPLETION_NAMES, keys) or "completion"
    conversational = _conversational(sample, prompt) or _conversational(sample, completion)
    task = options.task or "prompt_completion"
    convert = chat.prompt_converter(prompt, completion, conversational=conversational, as_chat=task == "chat")
    told = (f"prompt is {prompt!r}, completion is {completion!r}, {'messages' if conversational else 'texts'}",)
    shape = shape_of(task, conversational=conversational and task != "chat")
    return Plan(_rows(detected, options, reader), convert, shape, told)


def _preference(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    sample = [row for row in detected.sample if isinstance(row, dict)]
    paired = detected.layout == "preference"
    conversational = any(_conversational(sample, key) for key in ("prompt", "chosen", "completion"))
    make = preference.preference_converter if paired else preference.unpaired_converter
    shape = shape_of(detected.layout, conversational=conversational)
    told = (f"prompts and answers are {'messages' if conversational else 'texts'}",)
    return Plan(_rows(detected, options, reader), make(conversational=conversational), shape, told)


def _pictures(detected: Detected, options: PrepareOptions, reader: Reader, notes: Notes) -> Plan:
    settings = pictures.PictureOptions(
        root=options.images,
        relative_to=None if options.absolute_images else options.out,
        question=options.question,
        turns=options.turns,
    )
    told = (f"paths of pictures {'absolute' if options.absolute_images else 'relative to the folder of the output'}",)
    if detected.layout == "picture_folders":
        shape = shape_of("vision_chat", optional=("label",))
        return Plan(lambda: read_picture_folders(detected.files), pictures.folder_converter(settings), shape, told)
    make = {
        "picture_captions": pictures.caption_converter,
        "picture_questions": pictures.question_converter,
        "llava": pictures.llava_converter,
    }[detected.layout]
    return Plan(_rows(detected, options, reader), make(settings), shape_of("vision_chat"), told)


def _rows(detected: Detected, options: PrepareOptions, reader: Reader) -> Callable[[], Iterator[Raw]]:
    """The rows of files of rows, with the columns that `--columns` names under our names."""

    def read() -> Iterator[Raw]:
        for file in detected.files:
            for raw in reader.rows(file):
                yield replace(raw, values=rename_columns(raw.values, options.columns)) if options.columns else raw

    return read


def _conversational(sample: Sequence[Mapping[str, Any]], key: str) -> bool:
    return any(isinstance(row.get(key), list | dict) for row in sample)


def make_reader(detected: Detected, options: PrepareOptions) -> Reader:
    """The reader of a source's files; a container that was found out by the content counts as said."""
    known = KNOWN | {name.lower() for name in options.columns.values()}
    container = options.reading.container or detected.container
    return Reader(replace(options.reading, container=container), known)


_PLANS: Mapping[str, Callable[[Detected, PrepareOptions, Reader, Notes], Plan]] = {
    "labelled": _labelled,
    "fasttext": _fasttext,
    "class_files": _classes,
    "class_folders": _classes,
    "text": _text,
    "conll": _conll,
    "tokens": _tokens,
    "spans": _spans,
    "messages": _messages,
    "sharegpt": _messages,
    "alpaca": _alpaca,
    "prompt_completion": _prompt_completion,
    "preference": _preference,
    "unpaired_preference": _preference,
    "picture_folders": _pictures,
    "picture_captions": _pictures,
    "picture_questions": _pictures,
    "llava": _pictures,
}
