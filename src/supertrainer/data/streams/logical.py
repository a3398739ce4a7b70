"""One logical stream: where it is in each source, which document comes next, and its rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from supertrainer.core.errors import DataError
from supertrainer.data.streams.encoding import DocumentEncoder
from supertrainer.data.streams.mixing import next_source
from supertrainer.data.streams.reading import Cursor, Found, Lane
from supertrainer.data.streams.units import ODD_KINDS

_NO_ODD = (0,) * len(ODD_KINDS)


class OutOfDocuments(DataError):
    """Every source of a stream has been read as often as it may be."""


class Place(NamedTuple):
    """Where a stream is in one source, and what came from it so far."""

    at: Cursor = Cursor(0, 0)
    documents: int = 0
    tokens: int = 0
    odd: tuple[int, ...] = _NO_ODD


@dataclass(frozen=True)
class StreamState:
    """Where the next row of a stream begins.

    Attributes:
        places: by source, before the document that the row begins in.
        offset: of the row's first token in that document.
    """

    places: Mapping[str, Place]
    offset: int = 0

    def as_json(self) -> dict[str, Any]:
        """The state as plain data."""
        places = {name: [*place.at, place.documents, place.tokens, *place.odd] for name, place in self.places.items()}
        return {"sources": places, "offset": self.offset}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamState:
        """What `as_json` gave."""
        places = {
            name: Place(Cursor(numbers[0], numbers[1]), numbers[2], numbers[3], tuple(numbers[4:]))
            for name, numbers in value["sources"].items()
        }
        return cls(places, value["offset"])


class Document(NamedTuple):
    """A document as token ids, with what `Found` says of it."""

    tokens: np.ndarray
    found: Found


@dataclass
class _Supply:
    """A source as a stream sees it: documents that are encoded already, and the lane that brings more."""

    lane: Lane
    weight: float
    queue: deque[Document]
    waiting: int = 0  # tokens in the queue

    def is_over(self) -> bool:
        return not self.queue and self.lane.ended


class LogicalStream:
    """Gives rows of one stream. `refill` must bring at least one document to each source that isn't over."""

    def __init__(
        self,
        number: int,
        supplies: Mapping[str, tuple[Lane, float]],
        *,
        state: StreamState,
        sequence_length: int,
        isolated: bool,
    ) -> None:
        self.number = number
        self.supplies = {name: _Supply(lane, weight, deque()) for name, (lane, weight) in supplies.items()}
        self._places = dict(state.places)
        self._begin = state  # of the document that is being given
        self._current: np.ndarray | None = None
        self._offset = state.offset
        self._length = sequence_length + 1
        self._isolated = isolated

    @property
    def is_hungry(self) -> bool:
        """Whether a source has no document ready that may have one."""
        return any(not supply.queue and not supply.lane.ended for supply in self.supplies.values())

    def state(self) -> StreamState:
        """Where the next row begins."""
        if self._current is None:
            return StreamState(dict(self._places), self._offset)
        return StreamState(self._begin.places, self._offset)

    def next_row(self, refill: Callable[[], None]) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of a row and their documents.

        Args:
            refill: called without arguments where a source has no document ready.

        Raises:
            DataError: no source has documents left.
        """
        tokens, documents = np.empty(self._length, dtype=np.int64), np.zeros(self._length, dtype=np.int32)
        filled, number = 0, 0
        while filled < self._length:
            if self._current is None:
                self._draw(refill)
                assert self._current is not None
            part = self._current[self._offset : self._offset + self._length - filled]
            tokens[filled : filled + len(part)] = part
            documents[filled : filled + len(part)] = number
            filled += len(part)
            self._offset += len(part)
            number += 1
            if self._offset == len(self._current) and filled < self._length:
                self._current, self._offset = None, 0
        assert self._current is not None
        if self._isolated and self._offset == len(self._current):
            self._current, self._offset = None, 0
        else:
            self._offset -= 1  # the last token is the next row's first, so that what follows it is a target
        return tokens, documents

    def _draw(self, refill: Callable[[], None]) -> None:
        if self.is_hungry:
            refill()
        names = [name for name, supply in self.supplies.items() if not supply.is_over()]
        if not names:
            raise self._out()
        supplies = [self.supplies[name] for name in names]
        chosen = next_source(
            [supply.weight for supply in supplies],
            given=[self._places[name].tokens for name in names],
            offered=[len(supply.queue[0].tokens) for supply in supplies],
        )
        supply, name = supplies[chosen], names[chosen]
        document = supply.queue.popleft()
        supply.waiting -= len(document.tokens)
        before = self._places[name]
        if self._offset >= len(document.tokens):
            raise DataError(
                f"stream {self.number} goes on at token {self._offset} of a document of {len(document.tokens)}.",
                why="the documents or the tokenizer are not those of the checkpoint.",
                fix="put back what the run was started with.",
            )
        self._begin = StreamState(dict(self._places))
        self._current = document.tokens
        self._places[name] = Place(
            document.found.after,
            before.documents + 1,
            before.tokens + len(document.tokens),
            tuple(a + b for a, b in zip(before.odd, document.found.odd, strict=True)),
        )

    def _out(self) -> OutOfDocuments:
        told = ", ".join(f"{name} {place.documents:,} documents" for name, place in self._places.items())
        return OutOfDocuments(
            f"the documents have run out: stream {self.number} has read all of its own ({told}).",
            why="every source has reached its max_epochs.",
            fix="a larger max_epochs of a source (null: as often as needed), more documents, or fewer steps.",
        )


def refill(streams: Sequence[LogicalStream], *, encoder: DocumentEncoder, tokens_ahead: int) -> None:
    """Brings every stream's sources up to their share of `tokens_ahead`, and encodes all that is new at once."""
    found: list[tuple[_Supply, Found]] = []
    for stream in streams:
        whole = sum(supply.weight for supply in stream.supplies.values() if not supply.is_over())
        for supply in stream.supplies.values():
            if supply.lane.ended:
                continue
            lack = tokens_ahead * supply.weight / whole - supply.waiting
            if not supply.queue or lack > 0:
                new = supply.lane.read(max(1, int(lack * encoder.characters_a_token)))
                found += [(supply, document) for document in new]
    texts = [document.content for _, document in found if isinstance(document.content, str)]
    encoded = iter(encoder.encode(texts))
    for supply, document in found:
        content = document.content
        tokens = next(encoded) if isinstance(content, str) else encoder.framed(content)
        supply.queue.append(Document(tokens, document))
        supply.waiting += len(tokens)
