"""Compressed text, unpacked once: inside a compressed file no place can be reached without all that is before it."""

from __future__ import annotations

import contextlib
import gzip
import logging
import shutil
import uuid
import zlib
from pathlib import Path
from typing import IO

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.core.files import is_disk_full
from supertrainer.core.user_cache import user_cache
from supertrainer.data.streams.files import DocumentFile, fingerprint

log = logging.getLogger(__name__)

_COPY_BYTES = 1 << 20


def unpacked(file: DocumentFile, *, cache: str | None) -> Path:
    """The plain text of a file: itself, or a copy in the cache, which is made where it isn't there yet.

    Processes that make the same copy at once don't disturb each other; a copy is there whole or not at all.

    Raises:
        DataError: the file is broken.
        ConfigError: the cache can't be written.
    """
    if not file.is_compressed:
        return file.path
    facts = fingerprint(file)
    folder = Path(cache).expanduser() if cache is not None else user_cache() / "unpacked"
    copy = folder / f"{facts['sha256'][:32]}-{facts['size']}{file.path.with_suffix('').suffix}"
    if not copy.is_file():
        _unpack(file, copy)
    return copy


def _unpack(file: DocumentFile, copy: Path) -> None:
    log.info("%s is unpacked once into %s", file.name, copy)
    aside = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}.tmp")
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("xb") as plain:
            _copy_content(file, plain)
        aside.replace(copy)
    except OSError as error:
        raise ConfigError(
            f"{file.name} can't be unpacked into {copy.parent}: {error}.",
            why="the disk is full." if is_disk_full(error) else "",
            fix="dataset.cache=another directory.",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _copy_content(file: DocumentFile, plain: IO[bytes]) -> None:
    import pyarrow as pa

    if not file.path.stat().st_size:
        raise _broken(file, "it has no bytes")
    try:
        if file.path.suffix.lower() == ".gz":
            with gzip.open(file.path) as packed:
                shutil.copyfileobj(packed, plain, _COPY_BYTES)
        else:
            with pa.input_stream(str(file.path), compression="zstd") as packed:
                while chunk := packed.read(_COPY_BYTES):
                    plain.write(chunk)
    except (EOFError, gzip.BadGzipFile, zlib.error, pa.ArrowInvalid) as error:
        raise _broken(file, error) from None
    except OSError as error:
        if error.errno is None:  # Arrow's word for content that is no zstd; the disk's own errors have a number
            raise _broken(file, error) from None
        raise


def _broken(file: DocumentFile, reason: Exception | str) -> DataError:
    return DataError(
        f"{file.path} can't be unpacked: {reason}.",
        why="it is cut off, or its bytes have changed: documents would be missing from it.",
        fix="fetch the file again, or leave it out: dataset.sources.NAME.path or files=a pattern without it.",
    )
