"""Packs hold every row once and no more than they can; documents in them start anew."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from supertrainer.core.errors import DataError
from supertrainer.data.batching import GHOST, BatchPlan, MicroBatchSampler
from supertrainer.data.collation import EncodedRows
from supertrainer.data.packing import PackedRows, first_fit_decreasing, one_row_a_pack


def rows_of(*pairs: tuple[list[int], list[int]]) -> EncodedRows:
    import datasets

    return EncodedRows(
        datasets.Dataset.from_dict({"input_ids": [ids for ids, _ in pairs], "labels": [labels for _, labels in pairs]})
    )


THREE = (([11, 12, 13], [-100, 12, 13]), ([21, 22], [21, 22]), ([31], [31]))


def test_the_first_pack_with_room_is_taken() -> None:
    """7 and 3 fill the first, 6 and 4 the second, 5 and 5 the third; 2 opens a fourth."""
    lengths = [4, 5, 2, 7, 3, 5, 6]
    plan = first_fit_decreasing(lengths, capacity=10, seed=0)
    assert [sorted(lengths[row] for row in plan.of(pack)) for pack in range(len(plan))] == [[3, 7], [4, 6], [5, 5], [2]]


@pytest.mark.parametrize("seed", range(30))
def test_every_row_is_in_one_pack_and_none_is_too_full(seed: int) -> None:
    generator = np.random.default_rng(seed)
    capacity = int(generator.integers(1, 60))
    lengths = generator.integers(1, capacity + 1, int(generator.integers(1, 200)))
    plan = first_fit_decreasing(lengths, capacity=capacity, seed=seed)
    assert sorted(plan.rows.tolist()) == list(range(len(lengths)))
    held = [int(lengths[plan.of(pack)].sum()) for pack in range(len(plan))]
    assert min(held) > 0
    assert max(held) <= capacity
    assert len(plan) <= 11 / 9 * -(-lengths.sum() // capacity) + 1 or 2 * lengths.max() > capacity
    # First fit: what a pack holds wouldn't have fitted into any pack before it, beside its longer rows.
    for later in range(len(plan)):
        for row in plan.of(later):
            for earlier in range(later):
                longer = [r for r in plan.of(earlier) if lengths[r] > lengths[row]]
                same = [r for r in plan.of(earlier) if lengths[r] == lengths[row]]
                assert lengths[longer].sum() + lengths[same].sum() + lengths[row] > capacity


def test_the_plan_is_a_function_of_lengths_capacity_and_seed() -> None:
    lengths = np.random.default_rng(0).integers(1, 50, 300)
    one, again = (first_fit_decreasing(lengths, capacity=64, seed=3) for _ in range(2))
    other = first_fit_decreasing(lengths, capacity=64, seed=4)
    assert one.rows.tolist() == again.rows.tolist()
    assert one.starts.tolist() == again.starts.tolist()
    assert one.rows.tolist() != other.rows.tolist()
    assert one.starts.tolist() == other.starts.tolist()  # how full packs are doesn't depend on the seed


def test_a_hundred_thousand_rows_are_packed_in_seconds_and_nearly_full() -> None:
    lengths = np.minimum(np.random.default_rng(0).lognormal(5.5, 0.8, 100_000).astype(int) + 1, 2048)
    started = time.process_time()
    plan = first_fit_decreasing(lengths, capacity=2048, seed=0)
    assert time.process_time() - started < 10
    assert lengths.sum() / (len(plan) * 2048) > 0.99


def test_a_row_longer_than_a_pack_is_an_error() -> None:
    with pytest.raises(DataError) as caught:
        first_fit_decreasing([3, 12, 4], capacity=10, seed=0)
    assert "row 1 has 12 tokens, more than the 10 of a pack" in str(caught.value)
    assert "dataset.max_length=12" in str(caught.value)


def test_a_pack_is_its_documents_with_positions_and_boundaries() -> None:
    rows = PackedRows(rows_of(*THREE), first_fit_decreasing([3, 2, 1], capacity=6, seed=0), flat=False)
    assert len(rows) == 1
    assert rows.lengths.tolist() == [6]
    pack = {name: values.tolist() for name, values in rows[0].items()}
    assert pack == {
        "input_ids": [11, 12, 13, 21, 22, 31],
        "position_ids": [0, 1, 2, 0, 1, 0],
        "labels": [-100, 12, 13, -100, 22, -100],
    }


def test_a_row_as_long_as_a_pack_has_it_for_itself() -> None:
    plan = first_fit_decreasing([2, 8, 3, 1], capacity=8, seed=0)
    assert [sorted(plan.of(pack).tolist()) for pack in range(len(plan))] == [[1], [0, 2, 3]]


def test_padding_is_a_document_of_its_own() -> None:
    rows = PackedRows(rows_of(*THREE), first_fit_decreasing([3, 2, 1], capacity=4, seed=0), flat=False)
    batch = rows.collate([rows[0], rows[1]], pad_token_id=9)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[11, 12, 13, 31], [21, 22, 9, 9]],
        "position_ids": [[0, 1, 2, 0], [0, 1, 0, 1]],
        "labels": [[-100, 12, 13, -100], [-100, 22, -100, -100]],
    }
    assert all(values.dtype == torch.int64 for values in batch.values())


def test_a_flat_batch_is_one_row_without_padding() -> None:
    rows = PackedRows(rows_of(*THREE), one_row_a_pack([3, 2, 1]), flat=True)
    batch = rows.collate([rows[1], rows[0]], pad_token_id=9)
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[21, 22, 11, 12, 13]],
        "position_ids": [[0, 1, 0, 1, 2]],
        "labels": [[-100, 22, -100, 12, 13]],
    }


def test_a_ghost_has_no_labels() -> None:
    rows = PackedRows(rows_of(*THREE), first_fit_decreasing([3, 2, 1], capacity=4, seed=0), flat=False)
    ghost = rows[GHOST]
    assert ghost["input_ids"].tolist() == [31]
    assert ghost["labels"].tolist() == [-100]


def test_packing_does_not_write_into_the_rows() -> None:
    rows = rows_of(*THREE)
    PackedRows(rows, one_row_a_pack(rows.lengths), flat=True)[1]
    assert rows[1]["labels"].tolist() == [21, 22]


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_processes_get_the_same_number_of_packs_in_every_step(world_size: int) -> None:
    """Packs are the rows that are dealt: 23 of them in steps of 6, on any number of processes."""
    lengths = np.random.default_rng(0).integers(5, 11, 46)
    rows = PackedRows(
        rows_of(*[([1] * n, [1] * n) for n in lengths]),
        first_fit_decreasing(lengths, capacity=20, seed=0),
        flat=False,
    )
    plan = BatchPlan(rows.lengths, global_batch_size=6, seed=0, batching="random")
    micro = [
        list(
            MicroBatchSampler(plan, micro_batch_size=1, accumulation=6 // world_size, rank=rank, world_size=world_size)
        )
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in micro}) == 1
    dealt = [row for batches in micro for batch in batches for row in batch if row != GHOST]
    assert sorted(dealt) == list(range(len(rows)))
