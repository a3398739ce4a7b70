"""Encoded rows and padded batches, by literals."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import torch

from supertrainer.data.batching import GHOST
from supertrainer.data.collation import EncodedRows, collate

ENCODED = {
    "input_ids": [[2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 10, 3]],
    "token_type_ids": [[0, 0, 0, 1, 1], [0, 0, 1], [0, 1, 1, 1]],
    "labels": [1, 0, 2],
    "length": [5, 3, 4],
}


def lists(batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    assert {tensor.dtype for tensor in batch.values()} == {torch.int64}
    return {name: tensor.tolist() for name, tensor in batch.items()}


def test_rows_are_padded_on_the_right_to_the_longest() -> None:
    rows = EncodedRows(datasets.Dataset.from_dict(ENCODED))
    assert lists(collate([rows[1], rows[2]], pad_token_id=9)) == {
        "input_ids": [[2, 8, 3, 9], [2, 9, 10, 3]],
        "attention_mask": [[1, 1, 1, 0], [1, 1, 1, 1]],
        "token_type_ids": [[0, 0, 1, 0], [0, 1, 1, 1]],
        "labels": [0, 2],
    }


def test_the_width_is_rounded_up() -> None:
    rows = EncodedRows(datasets.Dataset.from_dict(ENCODED))
    batch = collate([rows[0]], pad_token_id=0, pad_to_multiple_of=8)
    assert batch["input_ids"].tolist() == [[2, 5, 6, 7, 3, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0]]


def test_a_ghost_is_the_shortest_row_without_a_label() -> None:
    rows = EncodedRows(datasets.Dataset.from_dict(ENCODED))
    assert lists(collate([rows[GHOST]], pad_token_id=0)) == {
        "input_ids": [[2, 8, 3]],
        "attention_mask": [[1, 1, 1]],
        "token_type_ids": [[0, 0, 1]],
        "labels": [-100],
    }
    assert rows[1]["labels"] == 0


def test_a_label_for_every_token_is_padded_too() -> None:
    tagged = {"input_ids": [[2, 5, 3], [5, 3]], "labels": [[-100, 1, -100], [7, -100]]}
    rows = EncodedRows(datasets.Dataset.from_dict(tagged))
    assert collate([rows[0], rows[1]], pad_token_id=0)["labels"].tolist() == [[-100, 1, -100], [7, -100, -100]]
    assert rows[GHOST]["labels"].tolist() == [-100, -100]


def test_rows_without_labels_and_types_make_batches_without_them() -> None:
    rows = EncodedRows(datasets.Dataset.from_dict({"input_ids": [[2, 3]]}))
    assert sorted(collate([rows[0]], pad_token_id=0)) == ["attention_mask", "input_ids"]


def test_a_selection_keeps_rows_and_lengths_in_step() -> None:
    rows = EncodedRows(datasets.Dataset.from_dict(ENCODED).select([2, 0]))
    assert len(rows) == 2
    assert rows.lengths.tolist() == [4, 5]
    assert rows[0]["input_ids"].tolist() == [2, 9, 10, 3]
    sliced = EncodedRows(datasets.Dataset.from_dict(ENCODED).select(range(1, 3)))
    assert sliced[1]["input_ids"].tolist() == [2, 9, 10, 3]


def test_a_loader_of_torch_takes_sampler_rows_and_collation_as_they_are() -> None:
    from functools import partial

    from supertrainer.data.batching import BatchPlan, MicroBatchSampler

    rows = EncodedRows(datasets.Dataset.from_dict(ENCODED))
    plan = BatchPlan(rows.lengths, global_batch_size=2, seed=0, batching="length")
    sampler = MicroBatchSampler(plan, micro_batch_size=1, accumulation=2)
    loader = torch.utils.data.DataLoader(rows, batch_sampler=sampler, collate_fn=partial(collate, pad_token_id=0))
    labels = [batch["labels"].tolist() for batch in loader]
    assert len(loader) == len(labels) == 4
    assert labels[3] == [-100]
    assert sorted(label for batch in labels[:3] for label in batch) == [0, 1, 2]


def test_padding_of_a_pack_is_a_text_of_its_own() -> None:
    """Positions start anew in it, and there is no mask, with which a model wouldn't look at them."""
    packs = [
        {"input_ids": np.array([5, 6, 7]), "position_ids": np.array([0, 1, 0]), "labels": np.array([-100, 6, -100])},
        {"input_ids": np.array([8]), "position_ids": np.array([0]), "labels": np.array([-100])},
    ]
    batch = collate(packs, pad_token_id=9, pad_to_multiple_of=4)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[5, 6, 7, 9], [8, 9, 9, 9]],
        "position_ids": [[0, 1, 0, 0], [0, 0, 1, 2]],
        "labels": [[-100, 6, -100, -100], [-100, -100, -100, -100]],
    }
