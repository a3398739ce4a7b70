"""The shares of several sources, at every moment; and what happens when one runs out."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_documents import words
from supertrainer.core.errors import DataError
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.mixing import next_source
from supertrainer.data.streams.train_stream import merge_states

T = 3


def mixed(write: Callable[..., Path], weights: dict[str, float], **more: Any) -> dict[str, Any]:
    """Sources of ten documents each: those of the first begin with w0 to w9, those of the second with w100, …."""
    return {
        name: {"path": str(write(f"{name}.jsonl", [words(100 * n + i, 3) for i in range(10)])), "weight": weight}
        | more.get(name, {})
        for n, (name, weight) in enumerate(weights.items())
    }


@pytest.mark.parametrize("shares", [(0.001, 0.999), (0.5, 0.5), (0.7, 0.2, 0.1), (3.0, 1.0, 1.0, 0.01, 2.0)])
def test_each_source_is_within_one_document_of_its_share_at_every_prefix_of_every_stream(
    shares: tuple[float, ...], dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    stream = dataset(mixed(write, {f"s{n}": share for n, share in enumerate(shares)})).open(
        sequence_length=T, global_batch_size=2
    )
    given = [[0] * len(shares) for _ in range(2)]
    for step in range(1, 1200):
        for slot, token in enumerate(stream.next_step().tokens[:, 0]):
            given[slot][(int(token) - 3) // 100] += 1
        for of in given:
            assert all(abs(n - step * w / sum(shares)) < 1 for n, w in zip(of, shares, strict=True)), (step, of)
    assert all(min(of) >= 1 for of in given)


def test_documents_of_any_length_keep_the_shares_of_tokens_about_within_the_longest() -> None:
    draw = random.Random(3)
    for weights in ([0.001, 0.999], [0.6, 0.3, 0.1], [0.4, 0.3, 0.2, 0.05, 0.05]):
        given, offered = [0] * len(weights), [draw.randint(1, 100) for _ in weights]
        for _ in range(3000):
            chosen = next_source(weights, given=given, offered=offered)
            given[chosen] += offered[chosen]
            offered[chosen] = draw.randint(1, 100)
            assert max(abs(g - w * sum(given)) for g, w in zip(given, weights, strict=True)) < 120


def test_a_source_that_runs_out_leaves_the_mix_to_the_others_at_their_shares(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sources = mixed(write, {"a": 0.5, "b": 0.25, "c": 0.25}, a={"max_epochs": 2})
    stream = dataset(sources).open(sequence_length=T, global_batch_size=1)
    of = [(int(stream.next_step().tokens[0, 0]) - 3) // 100 for _ in range(80)]
    assert of.count(0) == 20
    assert 0 not in of[42:]
    assert abs(of.count(1) - of.count(2)) <= 1
    assert caplog.text.count("source a has run out in stream 0 after 2 epochs; the others go on") == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_without_documents_left_is_told_and_resumed_until_there(
    workers: int, dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    sources = mixed(write, {"a": 0.5, "b": 0.5}, a={"max_epochs": 1}, b={"max_epochs": 3})
    made = dataset(sources, workers=workers)
    stream = made.open(sequence_length=T, global_batch_size=1)
    whole = [stream.next_step().tokens.tolist() for _ in range(40)]
    for _ in range(2):
        with pytest.raises(DataError, match=r"have run out: stream 0 has read all of its own \(a 10 documents, b 30"):
            stream.next_step()
    stream.close()
    parts, state = [], None
    for _ in range(40):
        with made.open(sequence_length=T, global_batch_size=1, state=state) as part:
            parts.append(part.next_step().tokens.tolist())
            state = merge_states([part.state()])
    assert parts == whole


def test_too_few_documents_for_the_steps_are_told_before_any_work(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    made = dataset(mixed(write, {"a": 1.0}, a={"max_epochs": 2}))
    made.require_length(sequence_length=T, global_batch_size=2, steps=10)
    with pytest.raises(DataError, match=r"1,000 steps of 2 rows need 6,000 tokens, and there are at most"):
        made.require_length(sequence_length=T, global_batch_size=2, steps=1000)
    endless = dataset(mixed(write, {"a": 1.0, "b": 1.0}, a={"max_epochs": 2}))
    endless.require_length(sequence_length=T, global_batch_size=2, steps=10**9)
