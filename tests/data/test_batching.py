"""Every optimizer step has the same rows however it is dealt, and every process the same number of micro-batches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.data import batching
from supertrainer.data.batching import GHOST, BatchPlan, MicroBatchSampler, deal, evaluation_batches, padding_share

LENGTHS = 4 + np.random.PCG64(0).random_raw(1000).astype(np.int64) % 196


def plan(rows: int, *, size: int, batching: str = "length", seed: int = 0) -> BatchPlan:
    return BatchPlan(LENGTHS[:rows], global_batch_size=size, seed=seed, batching=batching)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batching", "rows", "size"), list(itertools.product(("random", "length"), (1, 7, 8, 9, 63, 64, 500), (1, 8, 32)))
)
def test_an_epoch_has_every_row_once_in_full_steps_but_the_last(batching: str, rows: int, size: int) -> None:
    for epoch in range(3):
        steps = plan(rows, size=size, batching=batching).step_rows(epoch)
        assert sorted(row for step in steps for row in step) == list(range(rows))
        assert [len(step) for step in steps[:-1]] == [size] * (len(steps) - 1)
        assert len(steps) == plan(rows, size=size).steps_per_epoch == (rows + size - 1) // size


@pytest.mark.parametrize("batching", ["random", "length"])
def test_epochs_and_seeds_differ_and_each_is_repeatable(batching: str) -> None:
    first = plan(100, size=8, batching=batching).step_rows(0)
    assert first == plan(100, size=8, batching=batching).step_rows(0)
    assert first != plan(100, size=8, batching=batching).step_rows(1)
    assert first != plan(100, size=8, batching=batching, seed=1).step_rows(0)


def test_the_order_is_pinned() -> None:
    """Written by this code on numpy 2.4.6 from PCG64's raw draws, which numpy promises not to change."""
    assert LENGTHS[:10].tolist() == [163, 169, 68, 121, 155, 10, 135, 165, 139, 69]
    assert plan(10, size=4, batching="random").step_rows(0) == [[3, 2, 1, 8], [6, 0, 7, 4], [5, 9]]
    assert plan(10, size=4, batching="length").step_rows(1) == [[0, 7, 4, 1], [5, 2, 9, 3], [8, 6]]


def test_steps_of_similar_length_come_in_random_order() -> None:
    steps = plan(960, size=32).step_rows(0)
    means = [float(LENGTHS[step].mean()) for step in steps]
    spreads = [int(np.ptp(LENGTHS[step])) for step in steps]
    assert max(spreads) < 50  # of 196
    assert abs(np.corrcoef(means, range(len(means)))[0, 1]) < 0.4


def test_the_short_step_is_not_always_of_the_longest_rows() -> None:
    lasts = [float(LENGTHS[plan(1000, size=32).step_rows(epoch)[-1]].mean()) for epoch in range(12)]
    assert min(lasts) < 60 < 140 < max(lasts)


def test_partners_change_between_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    def staying_together() -> float:
        first, second = (plan(1000, size=32).step_rows(epoch) for epoch in (0, 1))
        step_of = {row: number for number, step in enumerate(second) for row in step}
        return float(np.mean([np.bincount([step_of[row] for row in step]).max() / len(step) for step in first]))

    blurred = staying_together()
    monkeypatch.setattr(batching, "BLUR", 0.0)
    assert blurred < 0.56 < 0.75 < staying_together()


@pytest.mark.parametrize(
    ("world_size", "micro_batch_size", "rows"), list(itertools.product((1, 2, 4), (1, 2, 4, 8), (5, 16, 17, 31, 100)))
)
def test_processes_and_micro_batches_together_make_the_plans_steps(
    world_size: int, micro_batch_size: int, rows: int
) -> None:
    accumulation = max(16 // (micro_batch_size * world_size), 1)
    ours = plan(rows, size=16)
    samplers = [
        MicroBatchSampler(
            ours, micro_batch_size=micro_batch_size, accumulation=accumulation, rank=rank, world_size=world_size
        )
        for rank in range(world_size)
    ]
    for epoch in (0, 1):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        batches = [list(sampler) for sampler in samplers]
        assert {len(mine) for mine in batches} == {len(samplers[0])} == {ours.steps_per_epoch * accumulation}
        assert all(1 <= len(batch) <= micro_batch_size for mine in batches for batch in mine)
        for number, step in enumerate(ours.step_rows(epoch)):
            window = slice(number * accumulation, (number + 1) * accumulation)
            dealt = [row for mine in batches for batch in mine[window] for row in batch if row != GHOST]
            assert sorted(dealt) == sorted(step)


def test_a_step_is_dealt_by_length_back_and_forth() -> None:
    lengths = np.array([10, 80, 30, 70, 20, 60, 40, 50])
    assert deal(range(8), lengths, accumulation=2, world_size=2) == [[[1, 3], [4, 0]], [[5, 7], [6, 2]]]
    assert deal(range(8), lengths, accumulation=4, world_size=1) == [[[1, 3], [5, 7], [6, 2], [4, 0]]]


def test_a_short_step_is_spread_evenly_and_ghosts_fill_the_rest() -> None:
    lengths = np.array([50, 40, 30, 20, 10])
    assert deal(range(5), lengths, accumulation=2, world_size=2) == [[[0, 1], [4]], [[2], [3]]]
    assert deal(range(3), lengths, accumulation=2, world_size=2) == [[[0], [GHOST]], [[1], [2]]]
    assert deal([4], lengths, accumulation=1, world_size=4) == [[[4]], [[GHOST]], [[GHOST]], [[GHOST]]]


def test_processes_get_about_the_same_number_of_tokens() -> None:
    step = plan(64, size=64).step_rows(0)[0]
    tokens = [
        sum(int(LENGTHS[rows].max()) * len(rows) for rows in mine)
        for mine in deal(step, LENGTHS, accumulation=8, world_size=2)
    ]
    assert abs(tokens[0] - tokens[1]) / sum(tokens) < 0.02


def test_micro_batches_that_cannot_hold_a_step_are_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        MicroBatchSampler(plan(100, size=32), micro_batch_size=4, accumulation=2, world_size=2)
    assert str(raised.value.problems[0]) == (
        "micro-batch 4 × accumulation 2 × 2 processes hold 16 rows, fewer than trainer.global_batch_size=32.\n"
        "  Why: every row of an optimizer step belongs to one micro-batch.\n"
        "  Fix: an accumulation of 4."
    )


@pytest.mark.parametrize(("rows", "world_size"), list(itertools.product((1, 8, 9, 50), (1, 2, 4))))
def test_evaluation_sees_every_row_once_and_keeps_the_processes_in_step(rows: int, world_size: int) -> None:
    ours = [
        evaluation_batches(LENGTHS[:rows], batch_size=4, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    assert len({len(batches) for batches in ours}) == 1
    assert sorted(row for batches in ours for batch in batches for row in batch if row != GHOST) == list(range(rows))


def test_padding_by_hand() -> None:
    lengths = np.array([1, 2, 3, 4])
    assert padding_share([[0, 3], [1, 2]], lengths) == (8 + 6) / 10 - 1
    assert padding_share([[0, 1], [2, 3], [GHOST]], lengths) == (4 + 8) / 10 - 1
