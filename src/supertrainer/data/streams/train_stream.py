"""The rows of each training step: logical streams, dealt out to processes and to threads that work ahead."""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from supertrainer.core.errors import CheckpointError
from supertrainer.data.streams.encoding import DocumentEncoder
from supertrainer.data.streams.logical import LogicalStream, Place, StreamState, refill
from supertrainer.data.streams.reading import SourceOrder
from supertrainer.data.streams.rows import Rows
from supertrainer.data.streams.units import ODD_KINDS

VERSION = 1
_STEPS_AHEAD = 2  # of a thread
_TOKENS_AHEAD = 1 << 18  # of a process: enough texts at once for the tokenizer's own threads
_WAIT_SECONDS = 0.1


@dataclass(frozen=True)
class Layout:
    """Which slots of the global batch a process has, and the stream of each.

    Slot s belongs to process s mod world_size and to stream s mod num_streams, so the global batch doesn't depend on
    the number of processes. Where that number doesn't divide the streams, two processes may read the same stream.
    """

    global_batch_size: int
    num_streams: int
    sequence_length: int
    rank: int = 0
    world_size: int = 1

    @property
    def slots(self) -> range:
        """The slots of this process."""
        return range(self.rank, self.global_batch_size, self.world_size)

    @property
    def streams(self) -> list[int]:
        """The streams of this process."""
        return sorted({slot % self.num_streams for slot in self.slots})

    @property
    def rows_a_stream(self) -> int:
        """Rows of each stream in a step."""
        return self.global_batch_size // self.num_streams


@dataclass(frozen=True)
class _Step:
    """What the streams of one thread give for a step: rows by slot, and the states after them."""

    rows: Mapping[int, tuple[np.ndarray, np.ndarray]]
    states: Mapping[int, StreamState]


class TrainStream:
    """This process's rows, step after step. What is read ahead shows nowhere, neither in state nor in counts."""

    def __init__(
        self,
        streams: Sequence[LogicalStream],
        *,
        layout: Layout,
        encoder: DocumentEncoder,
        isolated: bool,
        workers: int,
        orders: Mapping[str, SourceOrder],
    ) -> None:
        """Starts the threads.

        Args:
            streams: those of this process.
            layout: where their rows go.
            encoder: shared by the threads.
            isolated: whether documents don't see each other.
            workers: threads; 0: rows are made when they are asked for.
            orders: of the sources, for the epochs.
        """
        self._layout, self._isolated, self._orders = layout, isolated, orders
        self._states = {stream.number: stream.state() for stream in streams}
        groups = [list(streams[index :: max(workers, 1)]) for index in range(max(workers, 1))]
        self._makers = [
            functools.partial(_make_step, group, layout, _Supplier(group, layout=layout, encoder=encoder))
            for group in groups
            if group
        ]
        self._threads = [_Ahead(maker) for maker in self._makers] if workers else []

    def next_step(self) -> Rows:
        """The rows of the next step, in the order of their slots.

        Raises:
            DataError: the documents have run out, or one is odd where that is an error. Later calls raise it again.
        """
        made = [thread.take() for thread in self._threads] if self._threads else [make() for make in self._makers]
        by_slot = {slot: row for step in made for slot, row in step.rows.items()}
        slots = list(self._layout.slots)
        rows = [by_slot[slot] for slot in slots]
        for step in made:
            self._states.update(step.states)
        return Rows(
            tokens=np.stack([tokens for tokens, _ in rows]),
            documents=np.stack([documents for _, documents in rows]),
            slots=np.array(slots, dtype=np.int64),
            isolated=self._isolated,
        )

    def state(self) -> dict[str, Any]:
        """Where the step after the last one that was given begins, as plain data: this process's streams."""
        return {
            "version": VERSION,
            "num_streams": self._layout.num_streams,
            "streams": {str(number): state.as_json() for number, state in sorted(self._states.items())},
        }

    def counts(self) -> dict[str, dict[str, Any]]:
        """{source: {documents, tokens, epochs, null, empty, broken, huge}} of what this process's streams have read.

        Documents and tokens are those before the document that each stream is in; `epochs` is how often the source has
        been read, on average over the streams.
        """
        counts: dict[str, dict[str, Any]] = {}
        for state in self._states.values():
            for name, place in state.places.items():
                of = counts.setdefault(name, dict.fromkeys(("documents", "tokens", "epochs", *ODD_KINDS), 0))
                of["documents"] += place.documents
                of["tokens"] += place.tokens
                for kind, count in zip(ODD_KINDS, place.odd, strict=True):
                    of[kind] += count
        for name, order in self._orders.items():
            read = [order.epochs(state.places[name].at) for state in self._states.values()]
            counts[name]["epochs"] = sum(read) / len(read)
        return counts

    def close(self) -> None:
        """Ends the threads."""
        for thread in self._threads:
            thread.close()
        self._threads, self._makers = [], []

    def __enter__(self) -> TrainStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ahead:
    """A thread that makes steps before they are asked for."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._steps: queue.Queue[_Step | BaseException] = queue.Queue(_STEPS_AHEAD)
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="documents", daemon=True)
        self._thread.start()

    def take(self) -> _Step:
        if self._failed is not None:
            raise self._failed
        step = self._steps.get()
        if isinstance(step, BaseException):
            self._failed = step
            raise step
        return step

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        step: _Step | BaseException | None = None
        while not self._stop.is_set() and not isinstance(step, BaseException):
            try:
                step = self._make()
            except BaseException as error:  # whatever it is, it is raised where the rows are asked for
                step = error
            self._hand_over(step)

    def _hand_over(self, step: _Step | BaseException) -> None:
        while not self._stop.is_set():
            try:
                self._steps.put(step, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The states of all processes as one, which a stream goes on from on any number of processes.

    Raises:
        CheckpointError: they aren't of the same step and run, or a stream is missing.
    """
    if not states or len({(state["version"], state["num_streams"]) for state in states}) > 1:
        raise CheckpointError(
            "the states of the processes' data don't belong together.", fix="this is a bug; report it."
        )
    streams: dict[str, Any] = {}
    for state in states:
        for number, value in state["streams"].items():
            if streams.setdefault(number, value) != value:
                raise CheckpointError(
                    f"two processes are at different places of stream {number}.",
                    why="their states are not of the same step.",
                    fix="this is a bug; report it.",
                )
    count = states[0]["num_streams"]
    missing = [number for number in range(count) if str(number) not in streams]
    if missing:
        raise CheckpointError(
            f"the state of stream {missing[0]} is missing ({len(missing)} of {count}).",
            why="a process's state was left out.",
            fix="merge the states of all processes.",
        )
    ordered = {str(number): streams[str(number)] for number in range(count)}
    return {"version": states[0]["version"], "num_streams": count, "streams": ordered}


def states_from(state: Mapping[str, Any] | None, *, streams: int, sources: Sequence[str]) -> list[StreamState]:
    """The state of every stream: of the beginning, or of a merged state.

    Raises:
        CheckpointError: the state is of another number of streams or of other sources.
    """
    if state is None:
        return [StreamState({name: Place() for name in sources}) for _ in range(streams)]
    if state["version"] != VERSION or state["num_streams"] != streams:
        raise CheckpointError(
            f"the data state has {state['num_streams']} streams in form {state['version']}, this run {streams} in "
            f"form {VERSION}.",
            why="the documents are dealt out to the streams, so their number can't change in a run.",
            fix=f"dataset.num_streams={state['num_streams']} and the global batch of the checkpoint.",
        )
    found = [StreamState.from_json(state["streams"][str(number)]) for number in range(streams)]
    named = set(found[0].places)
    if named != set(sources):
        raise CheckpointError(
            f"the data state is of the sources {', '.join(sorted(named))}, not {', '.join(sorted(sources))}.",
            fix="the sources of the checkpoint, or run.fresh=true.",
        )
    return found


class _Supplier:
    """Brings documents to the streams of a thread: few for the first step, so that it comes soon, then more at once."""

    def __init__(self, streams: Sequence[LogicalStream], *, layout: Layout, encoder: DocumentEncoder) -> None:
        self._streams, self._encoder = streams, encoder
        self._ahead = layout.rows_a_stream * (layout.sequence_length + 1)
        self._most = max(2 * self._ahead, _TOKENS_AHEAD // len(layout.streams))

    def __call__(self) -> None:
        refill(self._streams, encoder=self._encoder, tokens_ahead=self._ahead)
        self._ahead = min(2 * self._ahead, self._most)


def _make_step(streams: Sequence[LogicalStream], layout: Layout, bring: Callable[[], None]) -> _Step:
    own = set(layout.slots)
    rows: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for turn in range(layout.rows_a_stream):
        for stream in streams:
            row = stream.next_row(bring)
            slot = stream.number + turn * layout.num_streams
            if slot in own:
                rows[slot] = row
    return _Step(rows, {stream.number: stream.state() for stream in streams})
