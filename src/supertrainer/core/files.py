"""Files that a kill or a full disk never leaves half written, strict JSON, and what a full disk looks like."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import json
import math
import numbers
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

CHUNK_BYTES = 1 << 20
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# safetensors (Rust) says "(os error 28)"; torch's and pyarrow's C++ say "[Errno 28]", "[errno 28]" or only the text.
_FULL_TEXT = re.compile(
    rf"(?:os error|errno) (?:{'|'.join(str(number) for number in sorted(_FULL_ERRNOS))})\b"
    r"|no space left on device|disk quota exceeded|file too large",
    re.IGNORECASE,
)
# torch.save's zip writer loses the errno: after a short write it complains of its own position or of its stream.
_TORCH_ZIP_TEXT = re.compile(
    r"inline_container\.cc.*unexpected pos|basic_ios::clear|PytorchStreamWriter failed writing"
)


def write_atomic(path: Path, data: str | bytes, *, only_if: Callable[[], bool] | None = None) -> bool:
    """Writes a whole file: a reader sees the old content or the new, never a part, also after a power cut.

    Args:
        only_if: asked once everything is ready but the rename; where it says no, nothing changes and False is returned.

    Raises:
        OSError: the disk is full or the directory isn't writable; the old file is intact and nothing is left behind.
    """
    with _aside(path, data) as aside:
        if only_if is not None and not only_if():
            return False
        os.replace(aside, path)
    fsync_path(path.parent)
    return True


def create_exclusive(path: Path, data: str | bytes) -> bool:
    """Makes a file with its content in one step; False where it exists already.

    A hard link is atomic on NFS and Lustre too, and unlike O_EXCL it never shows an empty file.
    """
    with _aside(path, data) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            # An NFS server whose first answer got lost refuses the repeated request although the link was made.
            return os.stat(aside).st_nlink == 2
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            return _create_without_links(path, data)
    fsync_path(path.parent)
    return True


def fsync_path(path: Path) -> None:
    """Forces a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems can't sync a directory; a full disk (reported late) must get through.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP} or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def sha256_file(path: Path, *, sync: bool = False) -> str:
    """The SHA-256 of a file's content, as 64 hexadecimal digits; `sync` also forces the file to the disk."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        if sync:
            os.fsync(file.fileno())
    return digest.hexdigest()


def write_json(path: Path, value: object) -> None:
    """Writes `value` as indented, strict JSON, atomically. See `json_text` for what becomes of NaN."""
    write_atomic(path, json_text(value, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file holds; the strings that `json_text` wrote for NaN and the infinities are numbers again.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not JSON in UTF-8.
    """
    return restore_non_finite(json.loads(path.read_bytes()))


def json_text(value: object, *, indent: int | None = None) -> str:
    """`value` as JSON that a strict reader accepts.

    JSON has no NaN: it and the infinities become the strings "NaN", "Infinity" and "-Infinity" (null would not tell a
    diverged loss from one that wasn't measured). Paths become strings, numpy numbers plain ones, tuples lists.
    """
    plain = _plain(value)
    text = json.dumps(plain, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, from text that was cut between two code units
        text = json.dumps(plain, indent=indent, allow_nan=False)
    return text


def restore_non_finite(value: Any) -> Any:
    """Turns "NaN", "Infinity" and "-Infinity" back into floats, at any depth."""
    match value:
        case str():
            return NON_FINITE.get(value, value)
        case dict():
            return {key: restore_non_finite(item) for key, item in value.items()}
        case list():
            return [restore_non_finite(item) for item in value]
    return value


def is_disk_full(exception: BaseException) -> bool:
    """Whether an exception, or one that it came from, means that the disk, the quota or the file size limit is used up.

    Libraries hide the number: safetensors raises its own class with the text of the error, and torch.save's zip writer
    only says that its position is not where it should be; the latter is taken for a full disk, its usual cause.
    """
    pending: list[BaseException | None] = [exception]
    seen: set[int] = set()
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, OSError) and current.errno in _FULL_ERRNOS:
            return True
        text = str(current)
        if _FULL_TEXT.search(text) or (isinstance(current, RuntimeError) and _TORCH_ZIP_TEXT.search(text)):
            return True
        pending += [current.__cause__, current.__context__]
    return False


@contextlib.contextmanager
def _aside(path: Path, data: str | bytes) -> Iterator[Path]:
    """A synced file with `data` beside `path`, gone at the end unless it was renamed."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with aside.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _create_without_links(path: Path, data: str | bytes) -> bool:
    try:
        with path.open("xb") as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    return True


def _plain(value: object) -> object:
    match value:
        case None | bool() | str():
            return value
        case numbers.Integral():
            return int(value)
        case numbers.Real():
            number = float(value)
            if math.isfinite(number):
                return number
            return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
        case os.PathLike():
            return os.fspath(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    raise TypeError(f"{value!r} of type {type(value).__name__} can't be written as JSON")


@contextlib.contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Lifts the csv module's limit on a cell, its only switch, which is one for the whole process, for a while."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
