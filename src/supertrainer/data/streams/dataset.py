"""Documents for pretraining behind one class: tokenizer, streams of rows, held-out rows, facts."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.streams.blocks import (
    OpenUnits,
    SourceFiles,
    count_documents,
    plan_blocks,
    require_apart,
    wanted_blocks,
)
from supertrainer.data.streams.encoding import DocumentEncoder, tokenizer_digest
from supertrainer.data.streams.logical import LogicalStream, OutOfDocuments, Place, StreamState, refill
from supertrainer.data.streams.reading import Cursor, Lane, SourceOrder
from supertrainer.data.streams.rows import Rows
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.stream_count import stream_count
from supertrainer.data.streams.tokenizer_files import read_tokenizer, require_no_gaps
from supertrainer.data.streams.train_stream import Layout, TrainStream, states_from

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

_TOKENIZER_BUDGET = 1 << 20  # characters read at once for the training of a tokenizer
_VALIDATION_UNITS = 8


class StreamDataset:
    """Documents of one or several sources, as rows of token ids."""

    label_names: tuple[str, ...] = ()

    def __init__(
        self, config: StreamDatasetConfig, *, seed: int, label_names: object = None, task: str = "pretraining"
    ) -> None:
        """Reads nothing yet.

        Args:
            config: the node `dataset`.
            seed: of the order and of what is held out.
            label_names: not used: texts have none.
            task: "pretraining".
        """
        self.config = config
        self.seed = seed

    @functools.cached_property
    def sources(self) -> Mapping[str, SourceFiles]:
        """The files of each source.

        Raises:
            ConfigError, DataError: they aren't there, broken, without the text, or in two sources.
        """
        digest = None if self.config.tokenizer is None else tokenizer_digest(self.tokenizer())
        found = {
            name: SourceFiles.of(name, source, tokenizer=digest, cache=self.config.cache)
            for name, source in self.config.sources.items()
        }
        require_apart(found)
        return found

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer; one that is trained on the sources is trained once and kept.

        Raises:
            ConfigError, DataError: there is none, or none can be trained.
        """
        return self._tokenizer

    @functools.cached_property
    def _tokenizer(self) -> PreTrainedTokenizerBase:
        if self.config.tokenizer is not None:
            tokenizer = read_tokenizer(self.config.tokenizer)
            require_no_gaps(tokenizer, reference=self.config.tokenizer)
            return tokenizer
        from supertrainer.data.tokenizer import cached_tokenizer

        assert self.config.tokenizer_training is not None, "the schema asks for one of the two"
        directory = cached_tokenizer(
            self.texts, vocab_size=self.config.tokenizer_training.vocab_size, key=self._content_key()
        )
        return read_tokenizer(str(directory))

    @functools.cached_property
    def _encoder(self) -> DocumentEncoder:
        return DocumentEncoder.of(self.config, self.tokenizer())

    def fingerprint(self) -> dict[str, dict[str, Any]]:
        """{source/file: {size, sha256}}: another one means other documents. Large files are sampled, see `files`."""
        return {name: stamp for source in self.sources.values() for name, stamp in source.fingerprint().items()}

    @functools.cached_property
    def _counts(self) -> dict[str, tuple[int, int] | None]:
        share = self.config.validation.share
        return {
            name: count_documents(source, block_bytes=self.config.block_bytes, seed=self.seed, share=share)
            for name, source in self.sources.items()
        }

    def facts(self) -> dict[str, dict[str, Any]]:
        """{source: {files, bytes, documents, held_out, share}}: documents are None where counting would take reading
        everything; `share` is that of the training tokens.
        """
        whole = sum(source.weight for source in self.config.sources.values())
        return {
            name: {
                "files": len(source.files),
                "bytes": source.size,
                "documents": None if (count := self._counts[name]) is None else count[0],
                "held_out": None if count is None else count[0] - count[1],
                "share": source.config.weight / whole,
            }
            for name, source in self.sources.items()
        }

    def texts(self) -> Iterator[str]:
        """The documents that are trained on, in an order of their own; of each source at most
        `tokenizer_training.max_characters`, by its share.

        Raises:
            DataError: a source holds token ids.
        """
        training = self.config.tokenizer_training
        whole = sum(source.weight for source in self.config.sources.values())
        for name, source in self.sources.items():
            left = training.max_characters * source.config.weight / whole if training is not None else float("inf")
            lane = Lane(
                self.order(name, streams=1, held_out=False, max_epochs=1),
                stream=0,
                units=OpenUnits(1),
                at=Cursor(0, 0),
            )
            while left > 0 and (found := lane.read(_TOKENIZER_BUDGET)):
                for document in found:
                    if not isinstance(document.content, str):
                        raise DataError(
                            f"dataset.sources.{name} holds token ids: no tokenizer can be trained on them.",
                            fix="dataset.tokenizer=the one that made them, dataset.tokenizer_training=null.",
                        )
                    yield document.content
                    left -= len(document.content)

    def open(
        self,
        *,
        sequence_length: int,
        global_batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        state: Mapping[str, Any] | None = None,
    ) -> TrainStream:
        """The rows of every step of one process, from the beginning or from a state.

        Args:
            sequence_length: tokens that the model reads of a row.
            global_batch_size: rows of a step, over all processes; `world_size` divides it.
            rank: which process this is.
            world_size: how many there are.
            state: what `merge_states` gave, on any number of processes; None: the beginning.

        Raises:
            ConfigError: the numbers don't fit each other.
            DataError: there is nothing to train on.
            CheckpointError: the state is of another number of streams or of other sources.
        """
        if global_batch_size % world_size:
            raise ConfigError(
                f"{world_size} processes can't share a global batch of {global_batch_size} rows evenly.",
                why="every process has the same number of rows in a step.",
                fix=f"trainer.global_batch_size={-(-global_batch_size // world_size) * world_size}.",
            )
        streams = self.num_streams(global_batch_size)
        layout = Layout(global_batch_size, streams, sequence_length, rank, world_size)
        states = states_from(state, streams=streams, sources=tuple(self.config.sources))
        orders = {
            name: dataclasses.replace(
                self.order(name, streams=streams, held_out=False, max_epochs=source.max_epochs), ended=set()
            )
            for name, source in self.config.sources.items()
        }
        units = OpenUnits(self.config.max_open_blocks or len(layout.streams) * len(orders))
        logical = [
            self._stream(number, orders, state=states[number], sequence_length=sequence_length, units=units)
            for number in layout.streams
        ]
        return TrainStream(
            logical,
            layout=layout,
            encoder=self._encoder,
            isolated=self.config.isolate_documents,
            workers=self.config.workers,
            orders=orders,
        )

    def validation(self, *, sequence_length: int, rows: int) -> Rows:
        """Rows of held-out documents, always the same: `rows` of them, or as many as there are.

        Raises:
            DataError: they don't fill a single row.
        """
        orders = {
            name: self.order(name, streams=1, held_out=True, max_epochs=1)
            for name in self.config.sources
            if (count := self._counts[name]) is None or count[0] > count[1]
        }
        start = StreamState({name: Place() for name in orders})
        units = OpenUnits(_VALIDATION_UNITS)
        stream = self._stream(0, orders, state=start, sequence_length=sequence_length, units=units)
        ahead = 2 * (sequence_length + 1)
        bring = functools.partial(refill, [stream], encoder=self._encoder, tokens_ahead=ahead)
        found: list[tuple[np.ndarray, np.ndarray]] = []
        try:
            while len(found) < rows:
                found.append(stream.next_row(bring))
        except OutOfDocuments:
            log.info("the held-out documents fill %d rows of %d tokens", len(found), sequence_length)
        if not found:
            raise DataError(
                f"the held-out documents don't fill one row of {sequence_length} tokens.",
                why=f"dataset.validation.share={self.config.validation.share:g} of the documents is held out.",
                fix="a larger dataset.validation.share, more documents, or shorter rows.",
            )
        return Rows(
            tokens=np.stack([tokens for tokens, _ in found]),
            documents=np.stack([documents for _, documents in found]),
            slots=np.arange(len(found)),
            isolated=self.config.isolate_documents,
        )

    def require_length(self, *, sequence_length: int, global_batch_size: int, steps: int) -> None:
        """Refuses more steps than the documents can last for, as far as that is known without encoding them.

        A token stands for a byte at least, so the bound is generous for text and exact for token ids.

        Raises:
            DataError: they are too few.
        """
        bounds = [source.most_tokens() for source in self.sources.values()]
        needed, most = steps * global_batch_size * sequence_length, sum(bound for bound in bounds if bound is not None)
        if None not in bounds and needed > most:
            raise DataError(
                f"{steps:,} steps of {global_batch_size:,} rows need {needed:,} tokens, and there are at most "
                f"{most:,}.",
                why="every source has max_epochs.",
                fix="fewer steps, a larger max_epochs (null: as often as needed), or more documents.",
            )

    def num_streams(self, global_batch_size: int) -> int:
        """How many logical streams there are, see `stream_count`."""
        return stream_count(self.config.num_streams, global_batch_size=global_batch_size, counts=self._counts)

    def order(self, name: str, *, streams: int, held_out: bool, max_epochs: int | None) -> SourceOrder:
        """Which of a source's documents come when, dealt out to logical streams; max_epochs None: again and again."""
        source = self.sources[name]
        blocks = plan_blocks(source, streams=streams, block_bytes=self.config.block_bytes)
        share = self.config.validation.share
        blocks = wanted_blocks(source, blocks, seed=self.seed, share=share, held_out=held_out)
        return SourceOrder(source, blocks, streams, self.seed, held_out, max_epochs, self.config)

    def _stream(
        self,
        number: int,
        orders: Mapping[str, SourceOrder],
        *,
        state: StreamState,
        sequence_length: int,
        units: OpenUnits,
    ) -> LogicalStream:
        lanes = {
            name: (
                Lane(order, stream=number, units=units, at=state.places[name].at),
                self.config.sources[name].weight,
            )
            for name, order in orders.items()
        }
        isolated = self.config.isolate_documents
        return LogicalStream(number, lanes, state=state, sequence_length=sequence_length, isolated=isolated)

    def _content_key(self) -> str:
        """What stands for the texts that a tokenizer is trained on."""
        config = self.config.model_dump(mode="json", exclude={"workers", "max_open_blocks", "cache", "target"})
        facts = {"seed": self.seed, "config": config, "files": self.fingerprint()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
