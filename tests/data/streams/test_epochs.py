"""Every epoch covers every document once, in an order of its own; held-out documents are in none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_documents import words
from supertrainer.core.errors import DataError
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.order import are_held_out, place_of, shuffled
from supertrainer.data.streams.train_stream import merge_states

T = 3  # a document of three words and EOS is a row by itself


def documents(made: StreamDataset, *, batch: int, steps: int, state: dict[str, Any] | None = None) -> list[list[int]]:
    """The documents that each stream gives, by their numbers."""
    stream = made.open(sequence_length=T, global_batch_size=batch, state=state)
    rows = [stream.next_step().tokens for _ in range(steps)]
    assert all((tokens[:, -1] == 1).all() for tokens in rows)
    return [[int(tokens[slot, 0]) - 3 for tokens in rows] for slot in range(batch)]


@pytest.fixture
def forty(write: Callable[..., Path]) -> Path:
    """Forty documents, each a row by itself."""
    return write("forty.jsonl", [words(number, 3) for number in range(40)])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 17, 64, 65, 1000])
def test_an_order_is_a_bijection_of_its_own_for_each_key(count: int) -> None:
    orders = [[place_of(number, count=count, key=key) for number in range(count)] for key in (1, 2)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert sorted(shuffled(count, key=1)) == list(range(count))
    if count > 16:
        assert orders[0] != orders[1]
        assert list(shuffled(count, key=1)) != list(shuffled(count, key=2))


@pytest.mark.parametrize(("batch", "steps"), [(1, 40), (4, 10), (8, 5)])
def test_epochs_differ_and_each_covers_every_document_once(
    batch: int, steps: int, dataset: Callable[..., StreamDataset], forty: Path
) -> None:
    given = documents(dataset(forty), batch=batch, steps=3 * steps)
    epochs = [[of[epoch * steps : (epoch + 1) * steps] for of in given] for epoch in range(3)]
    for epoch in epochs:
        assert sorted(chain(*epoch)) == list(range(40))
    assert epochs[0] != epochs[1] != epochs[2]
    assert given != documents(dataset(forty, seed=8), batch=batch, steps=3 * steps)


def test_after_going_on_in_the_middle_of_an_epoch_three_epochs_cover_everything(
    dataset: Callable[..., StreamDataset], forty: Path
) -> None:
    made = dataset(forty)
    stream = made.open(sequence_length=T, global_batch_size=4)
    first = [int(token) - 3 for _ in range(7) for token in stream.next_step().tokens[:, 0]]
    rest = documents(made, batch=4, steps=3 + 3 * 10, state=merge_states([stream.state()]))
    assert sorted(chain(first, *(of[:3] for of in rest))) == list(range(40))
    for epoch in range(3):
        assert sorted(chain(*(of[3 + 10 * epoch : 13 + 10 * epoch] for of in rest))) == list(range(40))


def test_held_out_documents_are_never_trained_on_and_the_validation_has_all_of_them(
    dataset: Callable[..., StreamDataset], forty: Path
) -> None:
    made = dataset(forty, validation={"share": 0.2})
    held = {int(token) - 3 for token in made.validation(sequence_length=T, rows=100).tokens[:, 0]}
    trained = set(chain(*documents(made, batch=4, steps=30)))
    assert held
    assert held | trained == set(range(40))
    assert not held & trained
    assert made.facts()["text"]["held_out"] == len(held)
    again = dataset(forty, validation={"share": 0.2})
    assert (
        again.validation(sequence_length=T, rows=3).tokens == made.validation(sequence_length=T, rows=3).tokens
    ).all()


def test_about_a_share_is_held_out() -> None:
    assert are_held_out(np.arange(100_000), key=3, share=0.01).mean() == pytest.approx(0.01, rel=0.1)


def test_too_few_held_out_documents_are_told(dataset: Callable[..., StreamDataset], forty: Path) -> None:
    with pytest.raises(DataError, match="the held-out documents don't fill one row of 64 tokens"):
        dataset(forty, validation={"share": 0.1}).validation(sequence_length=64, rows=1)


@pytest.mark.parametrize(("count", "streams"), [(1, 1), (3, 2), (7, 4), (8, 8), (30, 16), (70, 64)])
def test_there_are_no_more_streams_than_documents_and_each_document_still_comes_once(
    count: int, streams: int, dataset: Callable[..., StreamDataset], write: Callable[..., Path], caplog: Any
) -> None:
    batch = 64 if streams > 8 else 8
    batch = 16 if streams == 16 else batch
    made = dataset(write("few.jsonl", [words(number, 3) for number in range(count)]))
    assert made.num_streams(batch) == streams
    assert ("too few" in caplog.text) == (streams < batch)
    stream = made.open(sequence_length=T, global_batch_size=batch)
    seen = Counter(int(t) - 3 for _ in range(count) for t in stream.next_step().tokens[:, 0])
    assert set(seen.values()) == {batch}  # `batch` epochs in all
    assert len(seen) == count
