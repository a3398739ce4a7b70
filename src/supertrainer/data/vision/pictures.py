"""The pictures of a dataset's rows: a short reference stands for each, and its bytes stay where they are."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from supertrainer.data.chat.conversation import parsed
from supertrainer.data.images import (
    Background,
    Content,
    PictureFacts,
    PictureFault,
    decode,
    from_base64,
    inspect,
    looks_like_base64,
)
from supertrainer.data.prepare.record import RowFault, shown, text_of
from supertrainer.data.tables import ArrowColumn

_FILE, _KEPT, _ARROW = "file:", "kept:", "arrow:"
_WEB = ("http://", "https://", "ftp://", "s3://", "gs://", "hf://")
_LONGEST_NAME = 255  # bytes, of a file or folder on the usual file systems
_REFERENCES = ("path", "file_name", "url", "image_url", "base64", "image")  # keys of an object that names a picture


class PictureStore:
    """Gives every picture a reference (a short text), and finds it again.

    Files stay files, and what Arrow holds stays in Arrow (mapped, not read, where its file is); only pictures that are
    written as text, or given as objects, are kept as the bytes of their files.

    Args:
        max_pixels: more are refused.
        background: what is seen through transparent pixels.
    """

    def __init__(self, *, max_pixels: int, background: Background) -> None:
        self._max_pixels = max_pixels
        self._background = background
        self._columns: list[ArrowColumn] = []
        self._kept: list[bytes] = []
        self._facts: dict[str, PictureFacts | str] = {}

    def reader(self, column: Sequence[Any] | None, *, root: Path | None, pattern: str | None) -> PictureReader:
        """Reads the values of one file.

        Args:
            column: of pictures, where there is one.
            root: where relative paths begin; None where there is no such place.
            pattern: of a path that a value is put into.
        """
        number = None
        if isinstance(column, ArrowColumn):
            number = len(self._columns)
            self._columns.append(column)
        return PictureReader(self, number, root=root, pattern=pattern)

    def keep(self, content: bytes) -> str:
        """The reference of a picture's bytes, which are held."""
        self._kept.append(content)
        return f"{_KEPT}{len(self._kept) - 1}"

    def facts(self, reference: str, content: Content | None = None) -> PictureFacts:
        """What a picture's header says; read once.

        Args:
            content: of the reference, where it is at hand.

        Raises:
            PictureFault: the picture can't be used.
        """
        found = self._facts.get(reference)
        if found is None:
            try:
                found = inspect(self.content(reference) if content is None else content, max_pixels=self._max_pixels)
            except PictureFault as error:
                found = str(error)
            self._facts[reference] = found
        if isinstance(found, str):
            raise PictureFault(found)
        return found

    def size(self, reference: str) -> tuple[int, int]:
        """Width and height of a picture, by its header.

        Raises:
            PictureFault: it can't be used.
        """
        facts = self.facts(reference)
        return facts.width, facts.height

    def image(self, reference: str) -> Image.Image:
        """A picture's pixels, RGB.

        Raises:
            PictureFault: it is broken, or was changed.
        """
        return decode(self.content(reference), max_pixels=self._max_pixels, background=self._background)

    def content(self, reference: str) -> Content:
        """The file of a picture, or its bytes."""
        if reference.startswith(_FILE):
            return Path(reference.removeprefix(_FILE))
        if reference.startswith(_KEPT):
            return self._kept[int(reference.removeprefix(_KEPT))]
        number, row, *places = map(int, reference.removeprefix(_ARROW).split(":"))
        value = self._columns[number][row]
        for place in places:
            value = value[place]
        content: bytes = value["bytes"] if isinstance(value, Mapping) else value
        return content

    def fingerprint(self) -> dict[str, Any]:
        """How many pictures were found usable, and a hash over what tells them apart."""
        digests = sorted({facts.digest for facts in self._facts.values() if isinstance(facts, PictureFacts)})
        return {"pictures": len(digests), "sha256": hashlib.sha256(" ".join(digests).encode()).hexdigest()}

    @staticmethod
    def describe(reference: str) -> str:
        """The file that a reference stands for; empty where it is none."""
        return reference.removeprefix(_FILE) if reference.startswith(_FILE) else ""


class PictureReader:
    """Reads the pictures of one file's rows."""

    def __init__(self, store: PictureStore, column: int | None, *, root: Path | None, pattern: str | None) -> None:
        self._store = store
        self._column = column
        self._root = root
        self._pattern = pattern

    def of_column(self, value: Any, field: str, row: int) -> list[str]:
        """References to the pictures in a cell of the column of pictures; none where it is empty.

        Raises:
            RowFault: something else is there.
        """
        if value is None or value == "" or (isinstance(value, float) and value != value):
            return []
        if isinstance(value, str) and value.startswith("["):  # a list, in a table of texts
            value = parsed(value, field)
        if isinstance(value, list | tuple):
            return [self._one(item, f"{field}[{place}]", f":{row}:{place}") for place, item in enumerate(value)]
        return [self._one(value, field, f":{row}")]

    def of_value(self, value: Any, field: str) -> str:
        """The reference to a picture that is named elsewhere in a row.

        Raises:
            RowFault: it is none.
        """
        return self._one(value, field, None)

    def _one(self, value: Any, field: str, place: str | None) -> str:
        if isinstance(value, Mapping):
            given = value.get("bytes")
            if given is None:
                name = next((name for name in _REFERENCES if value.get(name) is not None), None)
                if name is None:
                    raise RowFault(field, f"names no picture: {shown(value)}")
                if name == "base64":
                    return self._written(value[name], f"{field}.{name}")
                return self._one(value[name], f"{field}.{name}", None)
            value = given
        if isinstance(value, bytes):
            if place is None or self._column is None:
                return self._store.keep(value)
            reference = f"{_ARROW}{self._column}{place}"
            self._note(reference, value)
            return reference
        if isinstance(value, Image.Image):
            return self._store.keep(_as_file(value))
        return self._text(value, field)

    def _note(self, reference: str, content: bytes) -> None:
        """Reads the header while the bytes are at hand; a fault is told with the others."""
        try:
            self._store.facts(reference, content)
        except PictureFault:
            return

    def _text(self, value: Any, field: str) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise RowFault(field, f"is no picture but {shown(value)}")
        if isinstance(value, str):
            if value.startswith(_WEB):
                raise RowFault(field, f"{shown(value)} is an address; download it first, and give the file's path")
            if looks_like_base64(value):
                return self._written(value, field)
        return f"{_FILE}{self._path(value, field)}"

    def _written(self, value: Any, field: str) -> str:
        try:
            return self._store.keep(from_base64(text_of(value, field)))
        except PictureFault as error:
            raise RowFault(field, str(error)) from None

    def _path(self, value: str | int, field: str) -> Path:
        name = str(value).removeprefix("file://")
        if self._pattern is not None:
            try:
                name = self._pattern.format(value)
            except (ValueError, IndexError, KeyError) as error:
                raise RowFault(field, f"{shown(value)} doesn't fit dataset.image_pattern: {error}") from None
        elif isinstance(value, int):
            raise RowFault(field, f"is the number {value}; dataset.image_pattern says which file that is")
        if len(os.fsencode(max(name.split("/"), key=len))) > _LONGEST_NAME or "\0" in name:
            raise RowFault(
                field,
                f"is no path but a text of {len(name):,} characters, {shown(name)}; before a picture in base64 that "
                "is neither PNG, JPEG, WebP, GIF nor TIFF stands data:image/…;base64,",
            )
        path = Path(name)
        if not path.is_absolute():
            if self._root is None:
                raise RowFault(field, f"{shown(name)} is a relative path in a Hub set; dataset.image_root says where")
            path = self._root / path
        return path.absolute()


def _as_file(picture: Image.Image) -> bytes:
    """A picture object as the bytes of a file, without loss."""
    stream = io.BytesIO()
    as_png = picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
    picture.save(stream, "PNG" if as_png else "TIFF", exif=picture.getexif())
    return stream.getvalue()
