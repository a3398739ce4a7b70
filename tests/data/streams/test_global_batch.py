"""The rows of every step: the same for any number of processes and threads, and after any number of kills."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from supertrainer.core.errors import CheckpointError, ConfigError
from supertrainer.data.streams import reading
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.train_stream import merge_states

T, BATCH = 13, 8
LAYOUTS = list(itertools.product((1, 2, 4), (0, 1, 2)))


@pytest.fixture
def sources(write: Callable[..., Path]) -> dict[str, Any]:
    """Two sources with documents of 1 to 39 words and odd ones among them, which are read several times in a test."""
    draw = random.Random(0)
    prose: list[Any] = [" ".join(f"w{draw.randrange(900)}" for _ in range(draw.randrange(1, 40))) for _ in range(60)]
    prose[5], prose[20], prose[33] = None, "  ", "w1 " * 500
    code = [" ".join(f"w{draw.randrange(900, 2000)}" for _ in range(draw.randrange(1, 20))) for _ in range(15)]
    return {
        "prose": {"path": str(write("prose.jsonl", prose)), "weight": 0.8},
        "code": {"path": str(write("code.jsonl", code)), "weight": 0.2},
    }


class Steps:
    """The steps of all processes of a layout, which can be killed and started again on another one."""

    def __init__(self, make: Callable[..., StreamDataset], sources: dict[str, Any], **settings: Any) -> None:
        self._datasets = {workers: make(sources, workers=workers, **settings) for workers in (0, 1, 2)}

    def open(self, world_size: int, workers: int, state: dict[str, Any] | None, *, batch: int = BATCH) -> list[Any]:
        return [
            self._datasets[workers].open(
                sequence_length=T, global_batch_size=batch, rank=rank, world_size=world_size, state=state
            )
            for rank in range(world_size)
        ]


def global_step(streams: list[Any]) -> np.ndarray:
    """Tokens, documents and targets of a whole step, by slot: (3, rows, …) as one array."""
    rows = [stream.next_step() for stream in streams]
    slots = np.concatenate([part.slots for part in rows])
    assert sorted(slots) == list(range(len(slots)))
    order = np.argsort(slots)
    parts = [np.concatenate([np.hstack([r.tokens, r.documents, r.targets]) for r in rows])[order]]
    return np.concatenate(parts)


def closed(streams: list[Any]) -> dict[str, Any]:
    """The merged state of processes that end here, as a checkpoint would give it back."""
    state = json.loads(json.dumps(merge_states([stream.state() for stream in streams])))
    for stream in streams:
        stream.close()
    return state


def test_the_global_batch_is_the_same_for_any_processes_and_workers_also_with_a_kill_at_every_step(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any]
) -> None:
    steps = Steps(dataset, sources)
    whole = steps.open(1, 0, None)
    wanted = [global_step(whole) for _ in range(2 * len(LAYOUTS))]
    end = closed(whole)

    for world_size, workers in LAYOUTS:
        streams = steps.open(world_size, workers, None)
        for number in range(4):
            assert (global_step(streams) == wanted[number]).all(), (world_size, workers, number)
        closed(streams)

    state, seen = None, []
    for world_size, workers in [*LAYOUTS, *reversed(LAYOUTS)]:
        streams = steps.open(world_size, workers, state)
        seen.append(global_step(streams))
        state = closed(streams)
    assert all((ours == theirs).all() for ours, theirs in zip(seen, wanted, strict=True))
    assert state == end
    tokens = Counter(np.concatenate([step[:, : T + 1].ravel() for step in seen]).tolist())
    assert tokens == Counter(np.concatenate([step[:, : T + 1].ravel() for step in wanted]).tolist())


def test_processes_that_do_not_divide_the_streams_give_the_same_global_batch(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any]
) -> None:
    steps = Steps(dataset, sources, num_streams=4)
    one, three = steps.open(1, 0, None, batch=12), steps.open(3, 1, None, batch=12)
    for _ in range(3):
        assert (global_step(one) == global_step(three)).all()
    assert closed(one) == closed(three)


def test_the_state_stays_small_and_going_on_reads_no_more_at_a_late_step_than_at_the_first(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Steps(dataset, sources)
    reads: list[int] = []
    read = reading.DocumentReader.read
    monkeypatch.setattr(reading.DocumentReader, "read", lambda *args: (reads.append(1), read(*args))[1])
    monkeypatch.setattr("supertrainer.data.streams.train_stream._TOKENS_AHEAD", 0)

    def first_step(state: dict[str, Any] | None) -> int:
        reads.clear()
        streams = steps.open(1, 0, state)
        global_step(streams)
        closed(streams)
        return len(reads)

    streams = steps.open(1, 0, None)
    global_step(streams)
    early = merge_states([streams[0].state()])
    for _ in range(100):
        global_step(streams)
    late = closed(streams)
    assert len(json.dumps(late)) < 1.3 * len(json.dumps(early))
    assert streams[0].counts()["prose"]["epochs"] > 5
    assert first_step(late) < 2 * first_step(early)


def test_what_is_read_ahead_shows_neither_in_the_state_nor_in_the_counts(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any]
) -> None:
    steps = Steps(dataset, sources)
    [ahead], [lazy] = steps.open(1, 2, None), steps.open(1, 0, None)
    for _ in range(3):
        ahead.next_step()
        lazy.next_step()
        assert ahead.state() == lazy.state()
        assert ahead.counts() == lazy.counts()
    ahead.close()


def test_states_that_do_not_belong_together_are_refused(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any]
) -> None:
    steps = Steps(dataset, sources)
    streams = steps.open(2, 0, None)
    global_step(streams)
    states = [stream.state() for stream in streams]
    with pytest.raises(CheckpointError, match=r"the state of stream 1 is missing \(4 of 8\)"):
        merge_states(states[:1])
    merged = merge_states(states)
    with pytest.raises(CheckpointError, match=r"the data state has 8 streams in form 1, this run 4"):
        steps.open(1, 0, merged, batch=4)
    streams[0].next_step()
    three = {**states[0], "streams": {**states[0]["streams"], "1": states[1]["streams"]["3"]}}
    with pytest.raises(CheckpointError, match=r"two processes are at different places of stream 1"):
        merge_states([three, states[1]])
    with pytest.raises(CheckpointError, match=r"the data state is of the sources code, prose, not prose"):
        dataset({"prose": sources["prose"]}).open(sequence_length=T, global_batch_size=BATCH, state=merged)


def test_a_batch_that_processes_or_streams_cannot_share_is_refused(
    dataset: Callable[..., StreamDataset], sources: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"3 processes can't share a global batch of 8 rows evenly"):
        dataset(sources).open(sequence_length=T, global_batch_size=8, world_size=3)
    with pytest.raises(ConfigError, match=r"num_streams=3 doesn't divide trainer.global_batch_size=8"):
        dataset(sources, num_streams=3).open(sequence_length=T, global_batch_size=8)
