"""One picture: every form that it may come in, every mode of its pixels, and what can be wrong with it."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from supertrainer.data.images import PictureFault, decode, inspect
from supertrainer.data.prepare.record import RowFault
from supertrainer.data.vision.pictures import PictureStore
from tiny_vision import as_bytes, picture

LIMIT = 1_000_000


def pixels(content: Any, **options: Any) -> np.ndarray:
    """Decoded values, after the header was found to say the same size."""
    made = decode(content, max_pixels=LIMIT, **options)
    facts = inspect(content, max_pixels=LIMIT)
    assert (facts.width, facts.height) == made.size
    assert made.mode == "RGB"
    return np.asarray(made)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Image.new("L", (5, 4), 77), (77, 77, 77)),
        (Image.new("1", (5, 4), 1), (255, 255, 255)),
        (Image.new("RGBA", (5, 4), (10, 20, 30, 255)), (10, 20, 30)),
        (Image.new("RGBA", (5, 4), (10, 20, 30, 0)), (255, 255, 255)),
        (Image.new("LA", (5, 4), (100, 255)), (100, 100, 100)),
        (Image.new("RGB", (5, 4), (1, 2, 3)).convert("P"), (0, 0, 0)),
        (Image.fromarray(np.full((4, 5), 257 * 9, dtype=np.uint16)), (9, 9, 9)),
    ],
    ids=["grey", "two colours", "opaque", "transparent", "grey with alpha", "palette", "16 bits"],
)
def test_every_mode_becomes_rgb(made: Image.Image, expected: tuple[int, ...]) -> None:
    assert pixels(as_bytes(made))[0, 0].tolist() == pytest.approx(expected, abs=6 if made.mode == "P" else 0)


@pytest.mark.parametrize(
    ("made", "kind", "expected"),
    [
        (Image.new("CMYK", (5, 4), (0, 255, 255, 0)), "JPEG", (254, 0, 0)),
        (Image.new("CMYK", (5, 4), (0, 255, 255, 0)), "TIFF", (255, 0, 0)),
        (Image.fromarray(np.full((4, 5), 0.2, dtype=np.float32)), "TIFF", (51, 51, 51)),
        (Image.fromarray(np.full((4, 5), 65_535, dtype=np.int32)), "TIFF", (255, 255, 255)),
        (Image.new("RGB", (5, 4), (9, 90, 200)), "WEBP", (9, 90, 200)),
        (Image.new("RGB", (5, 4), (9, 90, 200)), "BMP", (9, 90, 200)),
        (Image.new("P", (5, 4), 0), "GIF", (0, 0, 0)),
    ],
    ids=["CMYK JPEG", "CMYK TIFF", "fractions", "32 bits", "WEBP", "BMP", "GIF"],
)
def test_every_format_becomes_rgb(made: Image.Image, kind: str, expected: tuple[int, ...]) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    assert pixels(as_bytes(made, kind, **options))[0, 0].tolist() == pytest.approx(expected, abs=3)


def test_a_transparent_palette_shows_the_background() -> None:
    made = Image.new("P", (5, 4), 0)
    made.putpalette([200, 10, 10] * 256)
    content = as_bytes(made, transparency=0)
    assert pixels(content)[0, 0].tolist() == [255, 255, 255]
    assert pixels(content, background="black")[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_the_orientation_of_a_camera_is_applied(kind: str) -> None:
    made = Image.new("RGB", (6, 4), (0, 0, 0))
    made.paste((255, 255, 255), (0, 0, 3, 4))  # the left half is white
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # to be turned by 90° clockwise: the left half becomes the upper one
    turned = pixels(as_bytes(made, kind, exif=exif))
    assert turned.shape == (6, 4, 3)
    assert turned[0, 0, 0] > 200 > 50 > turned[-1, 0, 0]


def test_a_picture_of_one_pixel_is_enlarged_by_a_whole_factor() -> None:
    values = pixels(as_bytes(Image.new("RGB", (1, 3), (5, 6, 7))))
    assert values.shape == (12, 4, 3)
    assert (values == (5, 6, 7)).all()


def test_of_several_frames_the_first_is_taken() -> None:
    frames = [Image.new("L", (4, 4), value) for value in (10, 200)]
    content = as_bytes(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert pixels(content)[0, 0, 0] == 10


def test_a_file_and_its_bytes_give_the_same(tmp_path: Path) -> None:
    content = as_bytes(picture(), "JPEG")
    path = tmp_path / "a.bin"  # the content says what it is, not the name
    path.write_bytes(content)
    assert (pixels(path) == pixels(content)).all()
    assert inspect(path, max_pixels=LIMIT) == inspect(content, max_pixels=LIMIT)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes whose header promises so many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(100))), (b"IEND", b""))
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"<svg></svg>", "is no picture: it begins with b'<svg></s'"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is no picture"),
        (bomb(1001, 1000), "is too large: 1,001 × 1,000 pixels, 1,001,000 of at most 1,000,000"),
        (bomb(40_000, 40_000), "is too large"),
    ],
    ids=["empty", "text", "a program", "over the limit", "bomb"],
)
def test_what_is_no_picture_or_too_large_is_refused_by_its_header(content: bytes, said: str) -> None:
    with pytest.raises(PictureFault) as caught:
        inspect(content, max_pixels=LIMIT)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_a_truncated_picture_is_told_when_it_is_decoded(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    content = as_bytes(Image.fromarray(noise), kind)
    with pytest.raises(PictureFault, match=r"is broken|can't be read|is no picture"):
        decode(content[: len(content) // 2], max_pixels=LIMIT)


def test_pictures_with_the_same_ends_and_sizes_are_the_same() -> None:
    one, other = as_bytes(picture()), as_bytes(picture(colour=(1, 2, 3)))
    assert inspect(one, max_pixels=LIMIT).digest == inspect(bytes(one), max_pixels=LIMIT).digest
    assert inspect(one, max_pixels=LIMIT).digest != inspect(other, max_pixels=LIMIT).digest


CONTENT = as_bytes(picture(20, 12))
WRITTEN = base64.b64encode(CONTENT).decode()


@pytest.mark.parametrize(
    "value",
    [
        "a.png",
        "file:///a.png",
        CONTENT,
        {"bytes": CONTENT, "path": "gone.png"},
        {"bytes": None, "path": "a.png"},
        {"path": "a.png"},
        {"url": f"data:image/png;base64,{WRITTEN}"},
        {"image_url": {"url": f"data:image/png;base64,{WRITTEN}"}},
        {"base64": WRITTEN},
        WRITTEN,
        picture(20, 12),
    ],
    ids=["path", "file", "bytes", "both", "path of both", "object", "data URL", "OpenAI", "base64", "text", "PIL"],
)
def test_a_picture_may_come_in_any_form(value: Any, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(CONTENT)
    value = f"file://{tmp_path}/a.png" if value == "file:///a.png" else value
    store = PictureStore(max_pixels=LIMIT, background="white")
    reference = store.reader(None, root=tmp_path, pattern=None).of_value(value, "image")
    assert store.facts(reference).width == 20
    assert (np.asarray(store.image(reference)) == np.asarray(picture(20, 12))).all()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("https://example.org/a.png", "is an address; download it first"),
        ({"url": "http://example.org/a.png"}, "is an address; download it first"),
        ({"size": 3}, "names no picture"),
        (7, "dataset.image_pattern says which file"),
        (1.5, "is no picture but 1.5"),
        ({"base64": "%%"}, "is no base64"),
        ("data:image/png,abc", "is a data: URL without base64"),
    ],
)
def test_what_names_no_picture_is_told_with_its_field(value: Any, said: str, tmp_path: Path) -> None:
    store = PictureStore(max_pixels=LIMIT, background="white")
    with pytest.raises(RowFault) as caught:
        store.reader(None, root=tmp_path, pattern=None).of_value(value, "image")
    assert caught.value.field.startswith("image")
    assert said in str(caught.value)


def test_a_relative_path_in_a_hub_set_is_refused() -> None:
    store = PictureStore(max_pixels=LIMIT, background="white")
    with pytest.raises(RowFault, match=r"dataset\.image_root says where"):
        store.reader(None, root=None, pattern=None).of_value("a.png", "image")
