"""Token ids in files, written once and read in place: NAME.bin, NAME.offsets and NAME.json.

NAME.bin holds the token ids of all documents, without BOS and EOS, as little-endian uint16 or uint32; NAME.offsets a
uint64 for the beginning of each document and one for the end of the last; NAME.json the facts about both. It is written
last: where it stands, all is there.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.core.files import fsync_path, read_json, write_json

VERSION = 1
_SMALL_VOCABULARY = 1 << 16
_DTYPES: dict[str, np.dtype[Any]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}


class MemmapWriter:
    """Writes documents one after the other. What was begun and not committed leaves nothing behind."""

    def __init__(self, path: Path, *, vocab_size: int, tokenizer: str) -> None:
        """Begins a set of files.

        Args:
            path: NAME.bin, which must not be there yet.
            vocab_size: token ids are below it.
            tokenizer: what tells the tokenizer that made the token ids, see `encoding.tokenizer_digest`.

        Raises:
            ConfigError: the path has another ending, or there is such a file.
        """
        if path.suffix != ".bin":
            raise ConfigError(f"{path}: token ids go into a file NAME.bin.", fix=f"{path.with_suffix('.bin')}.")
        if path.exists() or path.with_suffix(".json").exists():
            raise ConfigError(f"{path} is there already.", fix="another name, or remove it.")
        self.path = path
        self._facts = {"version": VERSION, "vocab_size": vocab_size, "tokenizer": tokenizer}
        self._dtype = "uint16" if vocab_size <= _SMALL_VOCABULARY else "uint32"
        self._offsets = array("Q", [0])
        path.parent.mkdir(parents=True, exist_ok=True)
        self._aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        self._file = self._aside.open("xb")

    @property
    def documents(self) -> int:
        """Documents so far."""
        return len(self._offsets) - 1

    @property
    def tokens(self) -> int:
        """Token ids so far."""
        return self._offsets[-1]

    def append(self, tokens: Sequence[int] | np.ndarray) -> None:
        """Adds a document.

        Raises:
            DataError: a token id isn't of the vocabulary.
        """
        values = np.asarray(tokens, dtype=np.int64)
        if len(values) and not (values.min() >= 0 and values.max() < self._facts["vocab_size"]):
            raise DataError(
                f"document {len(self._offsets)}: token id {values.max()} in a vocabulary of "
                f"{self._facts['vocab_size']} tokens.",
                fix="the size of the tokenizer that made the token ids.",
            )
        self._file.write(values.astype(_DTYPES[self._dtype]).tobytes())
        self._offsets.append(self._offsets[-1] + len(values))

    def commit(self, **facts: Any) -> Path:
        """Ends the files and puts them in place; gives back NAME.bin.

        Args:
            facts: whatever else NAME.json is to tell.
        """
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        offsets = self.path.with_suffix(".offsets")
        beside = offsets.with_name(f"{self._aside.name}.offsets")
        try:
            beside.write_bytes(np.asarray(self._offsets, dtype="<u8").tobytes())
            fsync_path(beside)
            os.replace(self._aside, self.path)
            os.replace(beside, offsets)
        finally:
            with contextlib.suppress(OSError):
                beside.unlink()
        counts = {"documents": self.documents, "tokens": self.tokens}
        write_json(self.path.with_suffix(".json"), {**self._facts, "dtype": self._dtype, **counts, **facts})
        fsync_path(self.path.parent)
        return self.path

    def __enter__(self) -> MemmapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        with contextlib.suppress(OSError):
            self._aside.unlink()


class MemmapTokens:
    """Reads what `MemmapWriter` wrote: nothing is loaded but the pages that are touched."""

    def __init__(self, path: Path, *, name: str) -> None:
        """Opens NAME.bin.

        Raises:
            DataError: the files don't belong together, or are cut short.
        """
        self.facts = _read_facts(path, name=name)
        kind = _DTYPES[self.facts["dtype"]]
        documents, tokens = self.facts["documents"], self.facts["tokens"]
        sizes = {path: tokens * kind.itemsize, path.with_suffix(".offsets"): (documents + 1) * 8}
        for part, size in sizes.items():
            have = part.stat().st_size if part.is_file() else None
            if have != size:
                raise DataError(
                    f"{name}: {part.name} {'is not there' if have is None else f'has {have:,} bytes'}; "
                    f"{path.with_suffix('.json').name} tells of {size:,}.",
                    fix="write it anew with scripts/tokenize_corpus.py, or copy all of its files.",
                )
        empty = np.zeros(0, dtype=kind)
        self.tokens = np.memmap(path, dtype=kind, mode="r") if tokens else empty
        self.offsets = np.memmap(path.with_suffix(".offsets"), dtype="<u8", mode="r")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, number: int) -> np.ndarray:
        """The token ids of a document, counted from 0: int32."""
        begin, end = int(self.offsets[number]), int(self.offsets[number + 1])
        return np.asarray(self.tokens[begin:end]).astype(np.int32)


def _read_facts(path: Path, *, name: str) -> Mapping[str, Any]:
    try:
        facts = read_json(path.with_suffix(".json"))
        if facts["version"] != VERSION or facts["dtype"] not in _DTYPES:
            raise ValueError(f"version {facts['version']}, {facts['dtype']}")
        return {**facts, "documents": int(facts["documents"]), "tokens": int(facts["tokens"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{name}: {path.with_suffix('.json').name} doesn't tell of token ids: {error}.",
            fix="write it anew with scripts/tokenize_corpus.py.",
        ) from None
