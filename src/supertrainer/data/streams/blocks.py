"""A source as blocks of documents, and the units that are open."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.streams.files import DocumentFile, find_files, fingerprint
from supertrainer.data.streams.order import are_held_out, key_of
from supertrainer.data.streams.reblocking import unpacked
from supertrainer.data.streams.schema import StreamSource
from supertrainer.data.streams.table_files import ArrowFile, ParquetFile, TokenFile
from supertrainer.data.streams.text_files import JsonLines, TextFile
from supertrainer.data.streams.units import OpenUnit, Unit, UnitFile

_BLOCKS_A_STREAM = 8  # at least, where there are documents enough: then streams share an epoch nearly evenly
_SMALLEST_SPAN = 256 << 10
_EXACT_BYTES = 64 << 20  # text up to this size is read through once, for the number of its documents


@dataclass(frozen=True)
class Block:
    """Documents [begin, end) of a unit; `end` is None where their number isn't known before it is open."""

    file: int
    unit: Unit
    begin: int
    end: int | None


@dataclass
class SourceFiles:
    """The files of one source, each with its reader.

    Attributes:
        name: as the config has it.
        config: its node.
        files: in the order of their names.
        commit: of a Hub id.
        readers: one a file.
    """

    name: str
    config: StreamSource
    files: Sequence[DocumentFile]
    commit: str | None
    readers: Sequence[UnitFile] = field(repr=False)

    @classmethod
    def of(cls, name: str, config: StreamSource, *, tokenizer: str | None, cache: str | None) -> SourceFiles:
        """Finds the files of a source and looks at the beginning of each.

        Args:
            tokenizer: what tells the tokenizer in use, see `encoding.tokenizer_digest`; None: not yet known.
            cache: where compressed text is unpacked.

        Raises:
            ConfigError, DataError: they aren't there, broken, or without the text.
        """
        files, commit = find_files(config, name=name)
        readers = [_reader(file, config, tokenizer=tokenizer, cache=cache) for file in files]
        return cls(name, config, files, commit, readers)

    def fingerprint(self) -> dict[str, dict[str, Any]]:
        """{source/file: {size, sha256}}; for a Hub id {source/id: {commit}}."""
        if self.commit is not None:
            return {f"{self.name}/{self.config.path}": {"commit": self.commit}}
        stamps = {}
        for file in self.files:
            stamps[f"{self.name}/{file.name}"] = fingerprint(file)
            if file.format == "memmap":
                for ending in (".offsets", ".json"):
                    beside = DocumentFile(file.path.with_suffix(ending), file.name, file.format)
                    name = (
                        beside.path.name
                        if "/" not in file.name
                        else f"{file.name.rpartition('/')[0]}/{beside.path.name}"
                    )
                    stamps[f"{self.name}/{name}"] = fingerprint(beside)
        return stamps

    @property
    def size(self) -> int:
        """Bytes of its documents as the files hold them."""
        return sum(file.path.stat().st_size for file in self.files)

    def most_tokens(self) -> int | None:
        """More tokens it can't give: one for each byte, BOS and EOS for each document; None: no bound is known.

        Tables may hold a text once that many rows have.
        """
        if self.config.max_epochs is None or {file.format for file in self.files} & {"parquet", "arrow"}:
            return None
        most = 0
        for index, unit in self.units(block_bytes=_EXACT_BYTES):
            reader = self.readers[index]
            size = unit.size // reader.tokens.tokens.itemsize if isinstance(reader, TokenFile) else unit.size
            most += size + 2 * (size if unit.documents is None else unit.documents)
        return most * self.config.max_epochs

    def units(self, *, block_bytes: int) -> list[tuple[int, Unit]]:
        """Every unit with the index of its file."""
        exact = self.size <= _EXACT_BYTES
        return [
            (index, unit)
            for index, reader in enumerate(self.readers)
            for unit in reader.units(block_bytes=block_bytes, exact=exact)
            if unit.documents != 0
        ]

    def hold_out_key(self, index: int, *, seed: int) -> int:
        """The key by which documents of a file are held out. Other files don't change it."""
        return key_of("held out", seed, self.name, self.files[index].name)

    def numbers(self, index: int, unit: Unit) -> np.ndarray:
        """The numbers of a unit's documents in their file."""
        return self.readers[index].numbers(unit)


def require_apart(sources: Mapping[str, SourceFiles]) -> None:
    """Refuses a file that two sources take the same texts from.

    Raises:
        DataError: with the file and the sources.
    """
    taken: dict[tuple[int, int, str], str] = {}
    for name, source in sources.items():
        for file in source.files:
            stat = file.path.stat()  # a link to a file is that file
            other = taken.setdefault((stat.st_dev, stat.st_ino, source.config.text_column), name)
            if other != name:
                raise DataError(
                    f"{file.path} is in two sources: dataset.sources.{other} and dataset.sources.{name}.",
                    why="its documents would be trained on twice as often, and those that one source holds out are "
                    "trained on in the other.",
                    fix=f"leave it out of one of them (dataset.sources.{name}.files=a pattern without it); "
                    f"dataset.sources.{other}.weight says how often a source is read.",
                )


def count_documents(source: SourceFiles, *, block_bytes: int, seed: int, share: float) -> tuple[int, int] | None:
    """Documents in all and those that are trained on; None where counting would take reading everything."""
    units = source.units(block_bytes=block_bytes)
    if any(unit.documents is None for _, unit in units):
        return None
    documents = sum(unit.documents or 0 for _, unit in units)
    if source.size > _EXACT_BYTES or not share:
        return documents, round(documents * (1 - share))
    held = sum(
        int(are_held_out(source.numbers(file, unit), key=source.hold_out_key(file, seed=seed), share=share).sum())
        for file, unit in units
    )
    return documents, documents - held


def plan_blocks(source: SourceFiles, *, streams: int, block_bytes: int) -> list[Block]:
    """A source as blocks: so many that the streams share an epoch evenly, of at most `block_bytes` each.

    Raises:
        DataError: there is no document at all.
    """
    wanted = streams * _BLOCKS_A_STREAM
    span = min(block_bytes, max(_SMALLEST_SPAN, source.size // wanted))
    units = source.units(block_bytes=span)
    if not units:
        raise DataError(
            f"dataset.sources.{source.name} has no documents.",
            why=f"its files are empty: {', '.join(file.name for file in source.files[:5])}.",
            fix="other files, or leave the source out.",
        )
    known = sum(unit.documents or 0 for _, unit in units)
    at_once = max(1, known // wanted)
    blocks: list[Block] = []
    for file, unit in units:
        if unit.documents is None:
            blocks.append(Block(file, unit, 0, None))
            continue
        parts = -(-unit.documents // at_once)
        bounds = [unit.documents * part // parts for part in range(parts + 1)]
        blocks += [Block(file, unit, begin, end) for begin, end in itertools.pairwise(bounds)]
    return blocks


def wanted_blocks(
    source: SourceFiles, blocks: Sequence[Block], *, seed: int, share: float, held_out: bool
) -> list[Block]:
    """The blocks without those of a small source that hold none of the documents that are wanted."""
    if source.size > _EXACT_BYTES or not (share or held_out):
        return list(blocks)
    wanted: dict[tuple[int, Unit], np.ndarray] = {}
    for block in blocks:
        if (unit := (block.file, block.unit)) not in wanted:
            key = source.hold_out_key(block.file, seed=seed)
            wanted[unit] = are_held_out(source.numbers(*unit), key=key, share=share) == held_out
    return [block for block in blocks if wanted[block.file, block.unit][block.begin : block.end].any()]


class OpenUnits:
    """The units that a process has open: at most so many, of which the one unused for longest is closed first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: OrderedDict[tuple[str, int, tuple[int, int]], OpenUnit] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, source: SourceFiles, block: Block) -> OpenUnit:
        """The unit of a block, opened where it isn't open."""
        key = (source.name, block.file, block.unit.part)
        with self._lock:
            unit = self._open.pop(key, None)
            if unit is None:
                while len(self._open) >= self.limit:
                    self._open.popitem(last=False)
                unit = source.readers[block.file].open(block.unit)
            self._open[key] = unit
            return unit


def _reader(file: DocumentFile, config: StreamSource, *, tokenizer: str | None, cache: str | None) -> UnitFile:
    match file.format:
        case "jsonl":
            return JsonLines(unpacked(file, cache=cache), name=file.name, column=config.text_column)
        case "text":
            return TextFile(unpacked(file, cache=cache), name=file.name, separator=config.document_separator)
        case "parquet":
            return ParquetFile(file.path, name=file.name, column=config.text_column)
        case "arrow":
            return ArrowFile(file.path, name=file.name, column=config.text_column)
        case "memmap":
            return TokenFile(file.path, name=file.name, tokenizer=tokenizer)
    raise AssertionError(f"{file.format} is no format of a file")
