"""One picture, from a file or bytes: what its header says, and its pixels as RGB.

Pictures are opened by their content, in a fixed list of formats, with no more pixels than allowed. The header gives the
size that the pixels will have, so lengths in tokens are known without decoding.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

Content = Path | bytes
Background = Literal["white", "black"]

# Formats of pixels alone. Others that Pillow knows start programs (EPS) or hold documents.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF")
_BASE64 = re.compile(r"(iVBORw0KGgo|/9j/|UklGR|R0lGOD|SUkq|TU0AK)[A-Za-z0-9+/\s]{40,}={0,2}\s*")  # the usual beginnings
SMALLEST_SIDE = 4  # pixels; processors take a shorter side for the channels
_ENDS = 4_096  # bytes at either end of a picture, by which it is told apart from others
_TURNED = (5, 6, 7, 8)  # values of EXIF's orientation that swap width and height
_SIXTEEN_BIT = ("I;16", "I;16L", "I;16B", "I;16N")


class PictureFault(ValueError):
    """A picture can't be used; says why."""


@dataclass(frozen=True)
class PictureFacts:
    """What the header of a picture says.

    Attributes:
        width, height: of the pixels that `decode` gives.
        digest: tells pictures apart, whatever they are called.
    """

    width: int
    height: int
    digest: str


def inspect(content: Content, *, max_pixels: int) -> PictureFacts:
    """Reads a picture's header.

    Raises:
        PictureFault: it isn't there, is no picture, or has more than `max_pixels` pixels.
    """
    with _opened(content, max_pixels=max_pixels) as picture:
        width, height = picture.size
        if _orientation(picture) in _TURNED:
            width, height = height, width
    factor = _enlarging(width, height)
    return PictureFacts(width * factor, height * factor, _digest(content))


def decode(content: Content, *, max_pixels: int, background: Background = "white") -> Image.Image:
    """A picture's pixels.

    EXIF's orientation is applied, transparent pixels show the background, 16-bit values become 8-bit ones, of several
    frames the first is taken. A picture whose shorter side has less than four pixels is enlarged by a whole factor.

    Returns:
        An RGB picture of the size that `inspect` says.

    Raises:
        PictureFault: as `inspect`; or it is truncated or broken.
    """
    with _opened(content, max_pixels=max_pixels) as picture:
        orientation = _orientation(picture)
        try:
            picture.load()
        # Decoders raise nearly everything on broken content.
        except (OSError, ValueError, SyntaxError, IndexError, EOFError, TypeError, MemoryError) as error:
            raise PictureFault(f"is broken: {str(error) or type(error).__name__}") from None
        try:
            pixels = _rgb(picture, background)
        except ValueError as error:
            raise PictureFault(f"has colours that don't become RGB ({picture.mode}): {error}") from None
    if orientation != 1:
        pixels = _turned(pixels, orientation)
    factor = _enlarging(*pixels.size)
    return (
        pixels
        if factor == 1
        else pixels.resize((pixels.width * factor, pixels.height * factor), Image.Resampling.NEAREST)
    )


def looks_like_base64(text: str) -> bool:
    """Whether a text is a picture in base64, rather than a path."""
    return text.startswith("data:") or _BASE64.fullmatch(text) is not None


def from_base64(text: str) -> bytes:
    """The bytes of a picture in base64, or in a data: URL.

    Raises:
        PictureFault: it is neither.
    """
    head, comma, body = text.partition(",") if text.startswith("data:") else ("", "", text)
    if head and (not comma or not head.endswith(";base64")):
        raise PictureFault(f"is a data: URL without base64: {head[:40]}")
    try:
        return base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise PictureFault(f"is no base64: {error}") from None


@contextmanager
def _opened(content: Content, *, max_pixels: int) -> Iterator[Image.Image]:
    """An opened picture of which only the header was read."""
    try:
        _require_file(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged EXIF, and of pictures that are large: told below
            picture = Image.open(content if isinstance(content, Path) else io.BytesIO(content), formats=_formats())
    except PictureFault:
        raise
    except UnidentifiedImageError:
        start = _start(content)
        raise PictureFault("is empty" if not start else f"is no picture: it begins with {start!r}") from None
    except Image.DecompressionBombError as error:
        raise PictureFault(f"is too large: {str(error).partition(', could')[0]}") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise PictureFault(f"can't be read: {error}") from None
    with picture:
        pixels = picture.width * picture.height
        if pixels > max_pixels:
            raise PictureFault(
                f"is too large: {picture.width:,} × {picture.height:,} pixels, {pixels:,} of at most {max_pixels:,} "
                "(dataset.max_pixels)"
            )
        if not pixels:
            raise PictureFault("has no pixels")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield picture


@functools.cache
def _formats() -> list[str]:
    """Those of the formats that this Pillow was built with."""
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _require_file(content: Content) -> None:
    """A pipe or a device is never opened: that could wait for ever."""
    if isinstance(content, Path) and not content.is_file():
        known = "is a directory" if content.is_dir() else "is no plain file"
        raise PictureFault(known if content.exists() else "is not there")


def _start(content: Content) -> bytes:
    if isinstance(content, bytes):
        return content[:8]
    with content.open("rb") as file:
        return file.read(8)


def _orientation(picture: Image.Image) -> int:
    """EXIF's orientation, where the header says it; 1 is upright."""
    if picture.format == "TIFF":  # Pillow turns these itself, and says the size that they will have
        return 1
    if picture.format == "PNG" and "exif" not in picture.info:
        return 1  # asking for it would decode the pixels
    try:
        value = picture.getexif().get(ExifTags.Base.Orientation, 1)
    except (SyntaxError, ValueError, OSError, TypeError, KeyError):
        return 1  # damaged EXIF says nothing
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _turned(picture: Image.Image, orientation: int) -> Image.Image:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    picture.info["exif"] = exif.tobytes()
    turned = ImageOps.exif_transpose(picture)
    turned.info.clear()
    return turned


def _rgb(picture: Image.Image, background: Background) -> Image.Image:
    mode = picture.mode
    if mode in _SIXTEEN_BIT or mode in ("I", "F"):
        return _eight_bit(picture).convert("RGB")
    if mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in picture.info:
        seen = (picture.convert("LA") if mode == "La" else picture).convert("RGBA")
        plain = Image.new("RGBA", seen.size, background)
        return Image.alpha_composite(plain, seen).convert("RGB")
    return picture.convert("RGB") if mode != "RGB" else picture.copy()


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Values of more than 8 bits as 8-bit ones: of 65,535; fractions of 1; anything else of the picture's greatest."""
    values = np.asarray(picture).astype(np.float64)
    most = values.max(initial=0.0)
    if picture.mode == "F":
        top = 1.0 if most <= 1 else 255.0 if most <= 255 else most
    else:
        top = 65_535.0 if most <= 65_535 else most
    return Image.fromarray(np.clip(np.rint(values / top * 255), 0, 255).astype(np.uint8))


def _enlarging(width: int, height: int) -> int:
    return -(-SMALLEST_SIDE // min(width, height))


def _digest(content: Content) -> str:
    """A hash of a picture's size in bytes, its beginning and its end."""
    if isinstance(content, bytes):
        size, ends = len(content), content[:_ENDS] + content[-_ENDS:]
    else:
        with content.open("rb") as file:
            ends = file.read(_ENDS)
            size = file.seek(0, io.SEEK_END)
            file.seek(max(size - _ENDS, 0))
            ends += file.read()
    return hashlib.blake2b(ends, digest_size=16, salt=size.to_bytes(16, "little")).hexdigest()
