"""The rows of a step don't depend on processes, threads and interruptions, and an epoch has every document once."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from supertrainer.data.streams.blocks import Block, OpenUnits
from supertrainer.data.streams.reading import SourceOrder
from supertrainer.data.streams.rows import Rows
from supertrainer.data.streams.train_stream import merge_states
from supertrainer.operations.scoring import build_dataset
from supertrainer.operations.verification.pretraining.documents import differing_tokens
from supertrainer.operations.verification.pretraining.reduction import BATCH
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench
from supertrainer.operations.verification.reduction import revised
from supertrainer.operations.verification.rows import Row, none_of, same_bits

STEPS, LEFT = 4, 2  # of a stream; of them, after it was left and opened again
PROCESSES = (2, 4)
EPOCHS = 2
_BYTES = 64 << 20  # of a source that are opened: a large one has terabytes


def check_streams(bench: PretrainWorkbench) -> Iterator[Row]:
    """Compares the first steps of one process with those of several, of other threads, and of a stream that was left;
    then counts the blocks and documents of whole epochs.
    """
    whole = _numbered(bench.steps(STEPS))
    for processes in PROCESSES:
        yield same_bits(
            f"streams: {STEPS} steps of {processes} processes = of one: tokens",
            *differing_tokens(_together(bench, processes, STEPS), whole),
        )
    threads = 0 if bench.config.dataset.workers else 2
    other = build_dataset(bench.config.model_copy(update={"dataset": revised(bench.config.dataset, workers=threads)}))
    with other.open(sequence_length=bench.sequence_length, global_batch_size=BATCH) as stream:
        found = _numbered(stream.next_step() for _ in range(STEPS))
    yield same_bits(
        f"streams: the same with {threads} threads, not {bench.config.dataset.workers}: tokens",
        *differing_tokens(found, whole),
    )
    left = _state_after(bench, processes=1)
    rest = {step: rows for step, rows in whole.items() if step > STEPS - LEFT}
    first = STEPS - LEFT + 1
    yield same_bits(
        f"streams: left after step {STEPS - LEFT} and opened again: tokens",
        *differing_tokens(_numbered(bench.steps(LEFT, state=left), first=first), rest),
    )
    left = _state_after(bench, processes=2)
    yield same_bits(
        "streams: left by two processes, opened by four: tokens",
        *differing_tokens(_together(bench, 4, LEFT, state=left, first=first), rest),
    )
    yield from _epochs(bench)


def _together(
    bench: PretrainWorkbench, processes: int, count: int, *, state: Any = None, first: int = 1
) -> dict[int, Rows]:
    """The rows of all processes in the order of their slots, by step."""
    places = [bench.steps(count, state=state, rank=rank, world_size=processes) for rank in range(processes)]
    return _numbered((_joined(parts) for parts in zip(*places, strict=True)), first=first)


def _joined(parts: tuple[Rows, ...]) -> Rows:
    slots = np.concatenate([rows.slots for rows in parts])
    order = np.argsort(slots, kind="stable")
    return Rows(
        tokens=np.concatenate([rows.tokens for rows in parts])[order],
        documents=np.concatenate([rows.documents for rows in parts])[order],
        slots=slots[order],
        isolated=parts[0].isolated,
    )


def _state_after(bench: PretrainWorkbench, *, processes: int) -> Any:
    """Where the streams stand after the steps before they are left, as a checkpoint holds it: through JSON."""
    states = []
    for rank in range(processes):
        with bench.dataset.open(
            sequence_length=bench.sequence_length, global_batch_size=BATCH, rank=rank, world_size=processes
        ) as stream:
            for _ in range(STEPS - LEFT):
                stream.next_step()
            states.append(stream.state())
    return json.loads(json.dumps(merge_states(states)))


def _numbered(steps: Iterator[Rows], *, first: int = 1) -> dict[int, Rows]:
    return dict(enumerate(steps, first))


def _epochs(bench: PretrainWorkbench) -> Iterator[Row]:
    """Looks at the order of every source, as its streams share it."""
    streams = bench.dataset.num_streams(BATCH)
    off = blocks = wrong = documents = 0
    for name in bench.dataset.sources:
        trained, held = (
            bench.dataset.order(name, streams=streams, held_out=held_out, max_epochs=EPOCHS)
            for held_out in (False, True)
        )
        more, count = _blocks_off(trained, streams=streams)
        off, blocks = off + more, blocks + count
        more, count = _documents_off(trained, held)
        wrong, documents = wrong + more, documents + count
    yield none_of(f"streams: blocks that {EPOCHS} epochs don't have once each", off, blocks)
    yield none_of("streams: documents that an epoch doesn't have once, trained on or held out", wrong, documents)


def _blocks_off(order: SourceOrder, *, streams: int) -> tuple[int, int]:
    """How many blocks don't come once in an epoch, over all streams; and how many there are, in all epochs."""
    seen = np.zeros((EPOCHS, len(order.blocks)), dtype=np.int64)
    places = {block: place for place, block in enumerate(order.blocks)}
    for stream in range(streams):
        for number in itertools.count():
            found = order.locate(stream, number)
            if found is None:
                break
            epoch, block = found
            seen[epoch, places[block]] += 1
    return int((seen != 1).sum()), seen.size


def _documents_off(trained: SourceOrder, held: SourceOrder) -> tuple[int, int]:
    """How many documents are neither trained on nor held out, both, or more than once in an epoch; and how many were
    looked at: those of the first units.
    """
    units, off, count = OpenUnits(1), 0, 0
    wanted = [set(order.blocks) for order in (trained, held)]
    for block in _first_blocks(list(dict.fromkeys([*trained.blocks, *held.blocks]))):
        unit = units.get(trained.files, block)
        end = len(unit) if block.end is None else block.end
        for epoch in range(EPOCHS):
            found = [
                order.documents(epoch, block, unit)
                for order, blocks in zip((trained, held), wanted, strict=True)
                if block in blocks
            ]
            seen = np.bincount(np.concatenate(found) - block.begin, minlength=end - block.begin)
            off, count = off + int((seen != 1).sum()), count + len(seen)
    return off, count


def _first_blocks(blocks: list[Block]) -> Iterator[Block]:
    """Blocks of the first unit, and of the next ones until they have so many bytes."""
    size, seen = 0, set()
    for block in sorted(blocks, key=lambda block: (block.file, block.unit.part, block.begin)):
        if (unit := (block.file, block.unit.part)) not in seen:
            if size > _BYTES:
                return
            seen.add(unit)
            size += block.unit.size
        yield block
