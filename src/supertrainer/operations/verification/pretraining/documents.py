"""Rows that are cut into more documents than they have, and noted as they are trained on.

Long documents fill whole rows, so that all rows have as many tokens to predict: then a mean of means would be the mean,
and no document had another one to hide from.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from supertrainer.data.streams.rows import Rows
from supertrainer.data.streams.train_stream import TrainStream

MOST_CUTS = 4


def cut(rows: Rows) -> Rows:
    """The rows with up to three further boundaries between documents, by their slots: 0, 1, 2, 3, 0, …"""
    documents = rows.documents.copy()
    length = documents.shape[1]
    for place, slot in enumerate(rows.slots):
        cuts = int(slot) % MOST_CUTS
        for number in range(1, cuts + 1):
            documents[place, number * length // (cuts + 1) :] += length  # more than there are, so that none meet
        _, documents[place] = np.unique(documents[place], return_inverse=True)
    return dataclasses.replace(rows, documents=documents)


class NotedStream:
    """A stream whose rows are cut; it keeps those of every step."""

    def __init__(self, stream: TrainStream, steps: list[Rows]) -> None:
        self._stream, self._steps = stream, steps

    def next_step(self) -> Rows:
        """As the stream's own, cut."""
        rows = cut(self._stream.next_step())
        self._steps.append(rows)
        return rows

    def state(self) -> dict[str, Any]:
        """The stream's own: a cut takes no token away."""
        return self._stream.state()

    def counts(self) -> dict[str, dict[str, Any]]:
        """The stream's own."""
        return self._stream.counts()

    def close(self) -> None:
        """Ends it."""
        self._stream.close()

    def __enter__(self) -> NotedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def noted(dataset: Any) -> tuple[Any, list[Rows]]:
    """Makes a dataset open streams whose rows are cut, in place; and the list that their steps go to."""
    steps: list[Rows] = []
    own = dataset.open
    dataset.open = lambda **how: NotedStream(own(**how), steps)
    return dataset, steps


def pieces(documents: np.ndarray) -> Iterator[slice]:
    """Where each document of a row lies.

    Args:
        documents: (T,).
    """
    starts = [0, *(np.flatnonzero(documents[1:] != documents[:-1]) + 1), len(documents)]
    for begin, end in itertools.pairwise(starts):
        yield slice(int(begin), int(end))


def differing_tokens(one: Mapping[int, Rows], other: Mapping[int, Rows]) -> tuple[int, int]:
    """In how many tokens two trainings differ, of their rows by step, and how many there are."""
    if one.keys() != other.keys() or any(one[step].tokens.shape != other[step].tokens.shape for step in one):
        return max(sum(rows.tokens.size for rows in one.values()), 1), max(
            sum(rows.tokens.size for rows in one.values()), 1
        )
    differ = sum(
        int(((one[step].tokens != other[step].tokens) | (one[step].documents != other[step].documents)).sum())
        for step in one
    )
    return differ, sum(rows.tokens.size for rows in one.values())
