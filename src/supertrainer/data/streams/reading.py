"""The documents of a source that one logical stream gets, in their order, and what is odd about them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.streams.blocks import Block, OpenUnits, SourceFiles
from supertrainer.data.streams.order import are_held_out, key_of, place_of, shuffled
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.units import ODD_KINDS, Odd, OpenUnit

log = logging.getLogger(__name__)

_PASSES_WITHOUT_DOCUMENT = 50


class Cursor(NamedTuple):
    """A place in a stream's part of a source: the how many-th of its blocks, and of the block's documents."""

    block: int
    document: int


@dataclass(frozen=True)
class Found:
    """A document as it was read.

    Attributes:
        content: a text, or token ids.
        at: where it was found.
        after: where reading goes on.
        odd: how many of each of `ODD_KINDS` were left out just before it, or counted with it.
    """

    content: str | np.ndarray
    at: Cursor
    after: Cursor
    odd: tuple[int, ...]


@dataclass(frozen=True)
class SourceOrder:
    """What all streams share about a source.

    Attributes:
        files: where the documents are.
        blocks: the same for every process.
        streams: how many logical streams divide the blocks among them.
        held_out: whether this is about the held-out documents, or about the others.
        max_epochs: how often they may be read; None: as often as needed.
        config: the policies.
        ended: takes the stream that comes to its end first, which is told; None: nothing is told.
    """

    files: SourceFiles
    blocks: Sequence[Block]
    streams: int
    seed: int
    held_out: bool
    max_epochs: int | None
    config: StreamDatasetConfig
    ended: set[int] | None = None

    def locate(self, stream: int, number: int) -> tuple[int, Block] | None:
        """The epoch and the block that are the `number`-th of a stream; None beyond the last epoch.

        The blocks of all epochs, one epoch after the other, are dealt out to the streams in turn.
        """
        epoch, index = divmod(stream + number * self.streams, len(self.blocks))
        if self.max_epochs is not None and epoch >= self.max_epochs:
            return None
        key = key_of("blocks", self.seed, self.files.name, epoch)
        return epoch, self.blocks[place_of(index, count=len(self.blocks), key=key)]

    def epochs(self, at: Cursor) -> float:
        """How often a stream at this place has read its part."""
        return at.block * self.streams / len(self.blocks)

    def documents(self, epoch: int, block: Block, unit: OpenUnit) -> np.ndarray:
        """The indices in the unit of a block's documents, in the order of an epoch; the other part left out."""
        end = len(unit) if block.end is None else block.end
        count = end - block.begin
        if not count:
            return np.zeros(0, dtype=np.int64)
        place = (block.file, *block.unit.part, block.begin)
        key = key_of("documents", self.seed, self.files.name, epoch, *place)
        order = block.begin + shuffled(count, key=key)
        share = self.config.validation.share
        hold_out = self.files.hold_out_key(block.file, seed=self.seed)
        held = are_held_out(unit.numbers[block.begin : end], key=hold_out, share=share)
        return order[held[order - block.begin] == self.held_out]


class DocumentReader:
    """Reads single documents of a source, as the config's policies say."""

    def __init__(self, config: StreamDatasetConfig, *, source: str) -> None:
        self.config, self.source = config, source

    def read(self, unit: OpenUnit, index: int, odd: list[int]) -> str | np.ndarray | None:
        """A document, or None where it is left out; `odd` counts either way."""
        config = self.config
        raw = unit.read(index)
        content = _as_text(raw)
        if isinstance(content, Odd) and isinstance(raw, str | bytes) and config.on_broken == "replace":
            odd[ODD_KINDS.index("broken")] += 1
            content = _with_marks(raw)
        problem = content if isinstance(content, Odd) else self._problem(content)
        if problem is None:
            assert not isinstance(content, Odd)
            return content
        if config.policy(problem.kind) == "error":
            raise DataError(
                f"{unit.place(index)} of dataset.sources.{self.source}: {problem.why}.",
                why=f"dataset.on_{problem.kind}=error.",
                fix=f"dataset.on_{problem.kind}=drop, with which a run that has begun goes on; or mend the document "
                "for one that hasn't.",
            )
        odd[ODD_KINDS.index(problem.kind)] += 1
        return content if problem.kind == "huge" and config.on_huge == "split" else None  # type: ignore[return-value]

    def _problem(self, content: str | np.ndarray) -> Odd | None:
        if isinstance(content, np.ndarray):
            return None if len(content) else Odd("empty", "it has no tokens")
        if not content or content.isspace():
            return Odd("empty", "it has no text")
        if len(content) > self.config.huge_characters:
            return Odd("huge", f"{len(content):,} characters are more than dataset.huge_characters")
        return None


class Lane:
    """Reads the documents of one stream and source."""

    def __init__(self, order: SourceOrder, *, stream: int, units: OpenUnits, at: Cursor) -> None:
        self.order = order
        self.stream = stream
        self.ended = False
        self._reader = DocumentReader(order.config, source=order.files.name)
        self._units = units
        self._at = at
        self._documents: np.ndarray | None = None  # of the block that is being read
        self._block: tuple[int, Block] | None = None

    def read(self, budget: int) -> list[Found]:
        """The next documents, at least one, and more until they have `budget` characters (or tokens); none at the end.

        Raises:
            DataError: an odd document where the config calls it an error, or no document in any block.
        """
        found: list[Found] = []
        size, visited, odd = 0, 0, [0] * len(ODD_KINDS)
        while not self.ended and (not found or size < budget):
            if not self._enter():
                visited += 1
                if visited > _PASSES_WITHOUT_DOCUMENT * len(self.order.blocks) and not found:
                    raise self._nothing(odd)
                continue
            assert self._block is not None
            assert self._documents is not None
            at = self._at
            self._at = Cursor(at.block, at.document + 1)
            unit = self._units.get(self.order.files, self._block[1])
            index = int(self._documents[at.document])
            content = self._reader.read(unit, index, odd)
            if content is not None:
                found.append(Found(content, at, self._at, tuple(odd)))
                size += len(content)
                visited, odd = 0, [0] * len(ODD_KINDS)
        return found

    def _enter(self) -> bool:
        """Makes sure that there is a document at the cursor; else goes on to the next block and says no."""
        if self._documents is None:
            self._block = self.order.locate(self.stream, self._at.block)
            if self._block is None:
                self.ended = True
                self._tell_the_end()
                return False
            epoch, block = self._block
            self._documents = self.order.documents(epoch, block, self._units.get(self.order.files, block))
        if self._at.document < len(self._documents):
            return True
        self._at, self._documents = Cursor(self._at.block + 1, 0), None
        return False

    def _tell_the_end(self) -> None:
        """Once for all streams of a process, which come to their ends about the same time."""
        if self.order.ended == set():
            self.order.ended.add(self.stream)
            log.warning(
                "source %s has run out in stream %d after %d epochs; the others go on at their shares",
                self.order.files.name,
                self.stream,
                self.order.max_epochs,
            )

    def _nothing(self, odd: Sequence[int]) -> DataError:
        told = ", ".join(f"{count:,} {kind}" for kind, count in zip(ODD_KINDS, odd, strict=True) if count)
        return DataError(
            f"dataset.sources.{self.order.files.name} has no document that can be trained on.",
            why=f"what was read over and over: {told or 'nothing'}; the rest is held out.",
            fix="other files, other policies, or a smaller dataset.validation.share.",
        )


def every_document(files: SourceFiles, config: StreamDatasetConfig) -> Iterator[tuple[str | np.ndarray, list[int]]]:
    """All documents of a source as they stand in its files, held-out ones too, each with the odd ones before it.

    The last pair's document is empty: it has the odd ones at the end.

    Raises:
        DataError: as `DocumentReader.read`.
    """
    reader, odd = DocumentReader(config, source=files.name), [0] * len(ODD_KINDS)
    for number, unit in files.units(block_bytes=config.block_bytes):
        opened = files.readers[number].open(unit)
        for index in range(len(opened)):
            content = reader.read(opened, index, odd)
            if content is not None:
                yield content, odd
                odd = [0] * len(ODD_KINDS)
    yield "", odd


def _as_text(content: str | bytes | np.ndarray | Odd) -> str | np.ndarray | Odd:
    """Text that a tokenizer takes."""
    try:
        if isinstance(content, bytes):
            return content.decode()
        if isinstance(content, str):
            content.encode()
        return content
    except UnicodeDecodeError as error:
        return Odd("broken", f"no UTF-8: byte 0x{error.object[error.start]:02x}")
    except UnicodeEncodeError:
        return Odd("broken", "half of a surrogate pair, which no UTF-8 text can hold")


def _with_marks(content: str | bytes) -> str:
    """A broken text with U+FFFD for what is broken."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    return content.decode("utf-8", "replace")
