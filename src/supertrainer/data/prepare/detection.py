"""Which layout a source has, and why."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from supertrainer.core.errors import DataError
from supertrainer.data.prepare.class_files import class_name
from supertrainer.data.prepare.columns import check_columns, rename_columns
from supertrainer.data.prepare.conll import DOCUMENT, detect_columns
from supertrainer.data.prepare.containers import Container, Reader, container_of
from supertrainer.data.prepare.inputs import InputFile, Inputs
from supertrainer.data.prepare.object_layout import KNOWN, object_layout
from supertrainer.data.prepare.options import Layout, PrepareOptions
from supertrainer.data.prepare.pictures import SUFFIXES as PICTURES
from supertrainer.data.prepare.record import RowFault
from supertrainer.data.prepare.tag_schemes import split_tag

SAMPLE_ROWS = 200
SAMPLE_LINES = 2000
CLASS_FILES = 30
FASTTEXT = "__label__"
_CONLL_SUFFIXES = (".conll", ".conllu", ".conll2003", ".bio", ".iob", ".iob2", ".bioes")
_NO_DATA = (".md", ".rst", ".html", ".pdf", ".zip", ".tar", ".py", ".log", ".db", ".ini", ".toml", *PICTURES)
_PICTURE_LAYOUTS = ("picture_folders", "picture_captions", "picture_questions", "llava")


@dataclass(frozen=True)
class Detected:
    """The layout and why, the files that hold rows, the container they are read as, and the first rows."""

    layout: Layout
    why: str
    files: tuple[InputFile, ...]
    ignored: tuple[str, ...]
    container: Container | None = None
    sample: tuple[Any, ...] = ()


def detect(inputs: Inputs, options: PrepareOptions) -> Detected:
    """Tells the layout of the files of a source, or takes the one that was said.

    Raises:
        DataError: it can't be told; says what was found.
    """
    files, container = inputs.files, options.reading.container
    rows = [file for file in files if container_of(file, options.reading) != "text" and file.suffix not in PICTURES]
    pictures = [file for file in files if file.suffix in PICTURES]
    if rows:
        return _of_rows(rows, inputs, options, container)
    if pictures and options.layout in (None, "picture_folders"):
        if all(len(file.inside.parts) > 1 for file in pictures):
            folders = len({file.inside.parts[0] for file in pictures})
            why = f"{len(pictures)} pictures lie in {folders} folders, and no file describes them"
            return _detected("picture_folders", why, pictures, inputs)
        raise DataError(
            f"{options.source} holds pictures, and nothing that says what is on them.",
            fix="a folder per class, or a metadata.csv or .jsonl with file_name and caption beside them.",
        )
    texts = [file for file in files if file.suffix not in _NO_DATA]
    if not texts:
        raise DataError(f"{options.source} holds none of the known kinds of files: {_suffixes(files)}.")
    return _of_texts(texts, inputs, options)


def _of_rows(
    files: Sequence[InputFile], inputs: Inputs, options: PrepareOptions, container: Container | None
) -> Detected:
    reader = Reader(
        replace(options.reading, container=container), KNOWN | {name.lower() for name in options.columns.values()}
    )
    sample: list[Any] = []
    for file in files:
        rows = (row.values for row in reader.rows(file) if not isinstance(row.values, RowFault))
        sample += itertools.islice(rows, SAMPLE_ROWS - len(sample))
        if len(sample) >= SAMPLE_ROWS:
            break
    if not sample:
        raise DataError(f"{options.source} holds no row that can be read.", fix="give files with rows.")
    available = list(dict.fromkeys(key for row in sample if isinstance(row, dict) for key in row))
    check_columns(options.columns, available)
    check_columns({name: name for name in options.label_columns}, available, option="--label-columns")
    check_columns({name: name for name in options.keep}, available, option="--keep")
    if options.group not in (None, "file"):
        check_columns({"column": str(options.group)}, available, option="--group")
    sample = [rename_columns(row, options.columns) for row in sample]
    layout, why = object_layout(sample)
    if options.label_columns or options.task in ("sequence_classification", "multi_label", "regression"):
        layout, why = "labelled", f"the task is {options.task or 'multi_label'}"
    if options.layout is not None:
        layout, why = options.layout, "as said"
    detected = _detected(layout, why, files, inputs)
    if layout in _PICTURE_LAYOUTS:  # the pictures are named by the rows
        detected = replace(detected, ignored=tuple(n for n in detected.ignored if not n.lower().endswith(PICTURES)))
    return replace(detected, container=container, sample=tuple(sample))


def _of_texts(files: Sequence[InputFile], inputs: Inputs, options: PrepareOptions) -> Detected:
    if options.layout is not None and options.layout not in ("labelled", "alpaca", "messages", "sharegpt"):
        return _detected(options.layout, "as said", files, inputs)
    reader = Reader(options.reading)
    with reader.lines(files[0], newline=None) as text:
        lines = list(itertools.islice(text, SAMPLE_LINES))
    filled = [line for line in lines if line.strip()]
    if not filled:
        raise DataError(f"{files[0].name} is empty.", fix="give files with rows.")
    if all(FASTTEXT in line.split(maxsplit=1)[0] for line in filled):
        return _detected("fasttext", f"every line begins with {FASTTEXT}", files, inputs)
    if why := _why_conll(filled, files[0], options):
        return _detected("conll", why, files, inputs)
    if container := _hidden_rows(filled):
        found = _of_rows(files, inputs, options, container)
        what = "one JSON object a line" if container == "jsonl" else "the same number of cells in every line"
        return replace(found, why=f"{found.why}; {files[0].name} holds {what}")
    folders = {file.inside.parts[0] for file in files if len(file.inside.parts) > 1}
    if len(folders) > 1 and all(len(file.inside.parts) > 1 for file in files):
        why = f"{len(files)} texts lie in {len(folders)} folders"
        return _detected("class_folders", why, files, inputs)
    # A file that is called after a split is no class; files in the folder of a split are.
    classes = {class_name(file) for file in files if file.split is None or "/" in file.name}
    if 2 <= len(classes) <= CLASS_FILES and _one_text_a_line(files, reader):
        why = (
            f"{len(classes)} files that are called after no split, with a text a line: {', '.join(sorted(classes)[:5])}"
        )
        return _detected("class_files", why, files, inputs)
    return _detected("text", f"{len(files)} text files without labels", files, inputs)


def _why_conll(lines: Sequence[str], file: InputFile, options: PrepareOptions) -> str:
    found = detect_columns(lines, word=options.word_column, tag=options.tag_column)
    if found is None:
        return ""
    if file.suffix in _CONLL_SUFFIXES or any(line.startswith(DOCUMENT) for line in lines):
        return found[1]
    format = found[0]
    rows = [format.split(line.rstrip("\n")) for line in lines]
    tags = [row[format.tag - 1] for row in rows if len(row) == format.cells]
    outside = sum(tag == "O" for tag in tags)
    others = sum(split_tag(tag)[0] not in ("O", "") for tag in tags)
    return found[1] if outside and others and outside + others > 0.95 * len(tags) else ""


def _hidden_rows(lines: Sequence[str]) -> Container | None:
    """Rows in a file whose suffix doesn't say so: JSON lines, or cells with tabs."""
    if lines[0].lstrip().startswith("{"):
        try:
            json.loads(lines[0])
            return "jsonl"
        except json.JSONDecodeError:
            return None
    cells = Counter(line.count("\t") for line in lines)
    marks, count = cells.most_common(1)[0]
    return "table" if marks and count > 0.95 * len(lines) else None


def _one_text_a_line(files: Sequence[InputFile], reader: Reader) -> bool:
    """Whether no file has blank lines between its lines, as prose has."""
    for file in files:
        with reader.lines(file, newline=None) as text:
            lines = "".join(itertools.islice(text, SAMPLE_LINES)).strip().split("\n")
        if sum(not line.strip() for line in lines) > 0.02 * len(lines):
            return False
    return True


def _detected(layout: Layout, why: str, files: Sequence[InputFile], inputs: Inputs) -> Detected:
    taken = {file.name for file in files}
    left = [file.name for file in inputs.files if file.name not in taken]
    return Detected(layout, why, tuple(files), (*left, *inputs.ignored))


def _suffixes(files: Sequence[InputFile]) -> str:
    counts = Counter(re.sub(r"^$", "no suffix", file.suffix) for file in files)
    return ", ".join(f"{count} × {suffix}" for suffix, count in counts.most_common(5))
