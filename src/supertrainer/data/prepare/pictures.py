"""Rows with pictures: labels, captions, questions with answers, conversations. Pictures stay files; rows hold paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supertrainer.data.prepare.chat import MESSAGE_NAMES, Turns, check_turns, first_of, messages_of
from supertrainer.data.prepare.labelled import label_of, object_of
from supertrainer.data.prepare.record import Raw, Row, RowFault, shown, text_of

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
IMAGE_NAMES = ("image", "images", "file_name", "image_path", "img", "filename")
CAPTION_NAMES = ("caption", "text", "captions", "description")
MARKER = "<image>"
WHAT_IS_IT = "What is in the picture?"
DESCRIBE = "Describe the picture."
_MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\x00", b"MM\x00*")


@dataclass(frozen=True)
class PictureOptions:
    """Where pictures are looked up, and how their paths are written.

    `root` None: beside the file that names them. `relative_to` None: absolute paths.
    """

    root: Path | None
    relative_to: Path | None
    question: str | None
    turns: Turns


def folder_converter(options: PictureOptions) -> Callable[[Raw], list[Row]]:
    """A picture in the folder of its class: the question, and the class as the answer."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        row = _row([values["image"]], options.question or WHAT_IS_IT, values["label"], raw, options)
        return [{**row, "label": values["label"]}]

    return convert


def caption_converter(options: PictureOptions) -> Callable[[Raw], list[Row]]:
    """A picture with a caption, or several captions: a row each."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        name = first_of(CAPTION_NAMES, list(values)) or CAPTION_NAMES[0]
        captions = values.get(name)
        return [
            _row(_images(values), options.question or DESCRIBE, text_of(caption, name), raw, options)
            for caption in (captions if isinstance(captions, list) else [captions])
        ]

    return convert


def question_converter(options: PictureOptions) -> Callable[[Raw], list[Row]]:
    """A picture with a question and its answer; a list of answers gives its first, `qa` a row a pair."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        pairs = values.get("qa", values.get("questions", [values]))
        if not isinstance(pairs, list):
            raise RowFault("qa", f"is no list but {shown(pairs)}")
        rows: list[Row] = []
        for number, pair in enumerate(pairs):
            if not isinstance(pair, dict):
                raise RowFault(f"qa[{number}]", f"is no object but {shown(pair)}")
            answer = pair.get("answer", pair.get("answers"))
            answer = answer[0] if isinstance(answer, list) and answer else answer
            question = text_of(pair.get("question"), "question")
            rows.append(_row(_images(values), question, label_of(answer, "answer"), raw, options))
        return rows

    return convert


def llava_converter(options: PictureOptions) -> Callable[[Raw], list[Row]]:
    """A conversation with `<image>` where a picture stands; without a mark the picture goes first."""

    def convert(raw: Raw) -> list[Row]:
        values = object_of(raw)
        name = first_of(MESSAGE_NAMES, list(values)) or MESSAGE_NAMES[0]
        messages = messages_of(values.get(name), name)
        images = _images(values) if first_of(IMAGE_NAMES, list(values)) else []
        if options.turns == "strict":
            check_turns(messages, name)
        parts = [_parts(message["content"]) for message in messages]
        marks = sum(part["type"] == "image" for content in parts for part in content)
        if not marks and images:
            first = next((i for i, message in enumerate(messages) if message["role"] == "user"), 0)
            parts[first] = [*({"type": "image"} for _ in images), *parts[first]]
            marks = len(images)
        if marks != len(images):
            raise RowFault(name, f"has {marks} {MARKER} marks for {len(images)} pictures")
        told = [{**m, "content": content} for m, content in zip(messages, parts, strict=True)]
        return [{"images": [_path(image, raw, options) for image in images], "messages": told}]

    return convert


def _row(images: list[Any], question: str, answer: str, raw: Raw, options: PictureOptions) -> Row:
    content = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
    messages = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]
    return {"images": [_path(image, raw, options) for image in images], "messages": messages}


def _images(values: Mapping[str, Any]) -> list[Any]:
    name = first_of(IMAGE_NAMES, list(values)) or IMAGE_NAMES[0]
    images = values.get(name)
    return images if isinstance(images, list) else [images]


def _parts(content: Any) -> list[dict[str, str]]:
    if isinstance(content, list):
        return content
    parts: list[dict[str, str]] = []
    for number, text in enumerate(content.split(MARKER)):
        parts += [{"type": "image"}] if number else []
        parts += [{"type": "text", "text": text.strip("\n")}] if text.strip() else []
    return parts or [{"type": "text", "text": ""}]


def _path(image: Any, raw: Raw, options: PictureOptions) -> str:
    if isinstance(image, dict):  # {"path": …}, {"url": …}
        image = image.get("path", image.get("url"))
    name = text_of(image, "image")
    if "://" in name:
        raise RowFault("image", f"{shown(name)} is an address; nothing is fetched, so give a file")
    path = (options.root or raw.path.parent) / name
    if not path.is_file():
        raise RowFault("image", f"{path} is not there (--images: the folder of the pictures)")
    with path.open("rb") as file:
        start = file.read(12)
    if not start.startswith(_MAGIC) and not (start[:4] == b"RIFF" and start[8:] == b"WEBP"):
        raise RowFault("image", f"{path} is no picture: it begins with {shown(start[:8])}")
    if options.relative_to is None:
        return str(path.resolve())
    return Path(os.path.relpath(path.resolve(), options.relative_to.resolve())).as_posix()
