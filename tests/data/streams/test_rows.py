"""Documents in, rows out, by hand: `w0` is token 3, `w1` token 4; BOS is 0, EOS is 1."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.data.streams.dataset import StreamDataset


def rows_of(made: StreamDataset, *, length: int, count: int) -> list[Any]:
    stream = made.open(sequence_length=length, global_batch_size=1)
    return [stream.next_step() for _ in range(count)]


def test_a_long_document_goes_on_in_the_next_row_and_every_token_is_a_target_once(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    made = dataset(write("a.jsonl", ["w0 w1 w2 w3 w4 w5 w6"]), add_bos=True)
    first, second, third = rows_of(made, length=4, count=3)
    # The document is [0, 3, 4, 5, 6, 7, 8, 9, 1]: nine tokens, of which all but the first are learnt.
    assert (first.tokens.tolist(), first.documents.tolist()) == ([[0, 3, 4, 5, 6]], [[0, 0, 0, 0, 0]])
    assert (first.inputs.tolist(), first.targets.tolist()) == ([[0, 3, 4, 5]], [[3, 4, 5, 6]])
    assert second.tokens.tolist() == [[6, 7, 8, 9, 1]]
    assert third.tokens.tolist() == [[0, 3, 4, 5, 6]]  # the next epoch's; nothing of the last row is repeated


def test_isolated_documents_keep_their_eos_and_are_not_asked_for_the_next_beginning(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    [row, after] = rows_of(dataset(write("a.jsonl", ["w0 w1"])), length=6, count=2)
    assert row.tokens.tolist() == [[3, 4, 1, 3, 4, 1, 3]]
    assert row.documents.tolist() == [[0, 0, 0, 1, 1, 1, 2]]
    assert row.targets.tolist() == [[4, 1, -100, 4, 1, -100]]
    assert row.input_documents.tolist() == [[0, 0, 0, 1, 1, 1]]
    assert after.tokens.tolist() == [[3, 4, 1, 3, 4, 1, 3]]


def test_documents_that_see_each_other_are_learnt_across_the_boundary(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    [row, after] = rows_of(dataset(write("a.jsonl", ["w0 w1"]), isolate_documents=False), length=5, count=2)
    assert row.targets.tolist() == [[4, 1, 3, 4, 1]]
    assert row.input_documents is None
    assert after.tokens.tolist() == [[1, 3, 4, 1, 3, 4]]  # the last EOS still has to tell what comes after it


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({"add_bos": True, "add_eos": True}, [0, 3, 1]),
        ({"add_bos": False, "add_eos": True}, [3, 1]),
        ({"add_bos": True, "add_eos": False}, [0, 3]),
        ({"add_bos": False, "add_eos": False}, [3]),
        ({"add_bos": None}, [0, 3, 1]),
    ],
)
def test_each_document_has_bos_and_eos_once_where_they_are_asked_for(
    settings: dict[str, Any], tokens: list[int], dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    [row] = rows_of(dataset(write("a.jsonl", ["w0"]), **settings), length=2 * len(tokens) - 1, count=1)
    assert row.tokens.tolist() == [tokens * 2]


def test_a_written_out_special_token_is_text_or_the_token_and_never_a_second_eos(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    path = write("a.jsonl", ["w0 <eos>"])
    [token] = rows_of(dataset(path, special_tokens="token"), length=3, count=1)
    assert token.tokens.tolist() == [[3, 1, 3, 1]]
    [text] = rows_of(dataset(path, special_tokens="text"), length=4, count=1)
    assert text.tokens.tolist() == [[3, 2, 2, 2, 1]]


def test_a_tokenizer_without_eos_is_refused_where_one_is_asked_for(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], tokenizer: Path
) -> None:
    config = tokenizer / "tokenizer_config.json"
    config.write_text(config.read_text().replace('"eos_token": "<eos>"', '"eos_token": null'))
    with pytest.raises(ConfigError, match=r"dataset.add_eos=true: the tokenizer has no EOS token"):
        rows_of(dataset(write("a.jsonl", ["w0"])), length=3, count=1)
