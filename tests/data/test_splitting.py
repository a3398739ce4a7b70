"""Made splits and limits: stratified, seeded, disjoint, copies on one side, and the same wherever they are made."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.data.bert import BertDataset
from supertrainer.data.splitting import divide, quotas, sample, text_key, too_small

STRATA = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
KEYS = [text_key([f"text {number}"]) for number in range(100)]


def test_quotas_by_hand() -> None:
    assert quotas({"a": 60, "b": 30, "c": 10}, 10) == {"a": 6, "b": 3, "c": 1}
    assert quotas({"a": 5, "b": 5}, 3) == {"a": 2, "b": 1}
    assert quotas({"a": 997, "b": 2, "c": 1}, 10) == {"a": 8, "b": 1, "c": 1}
    assert quotas({"a": 2, "b": 1}, 10) == {"a": 2, "b": 1}
    assert quotas({"a": 90, "b": 9, "c": 1}, 2) == {"a": 2, "b": 0, "c": 0}
    assert quotas({}, 3) == {}


@pytest.mark.parametrize(
    ("counts", "total"), list(itertools.product(([7], [1, 1, 1], [50, 3, 1], [13, 11, 9, 7]), (1, 2, 5, 40)))
)
def test_quotas_sum_to_the_total_and_stay_within_the_counts(counts: list[int], total: int) -> None:
    named = {str(index): count for index, count in enumerate(counts)}
    quota = quotas(named, total)
    assert sum(quota.values()) == min(total, sum(counts))
    assert all(0 <= quota[name] <= count for name, count in named.items())


def test_made_splits_keep_the_proportions_and_cover_every_row_once() -> None:
    splits = divide(KEYS, STRATA, shares={"validation": 0.1, "test": 0.2}, seed=0)
    assert {split: Counter(STRATA[row] for row in rows) for split, rows in splits.items()} == {
        "train": {"a": 42, "b": 21, "c": 7},
        "validation": {"a": 6, "b": 3, "c": 1},
        "test": {"a": 12, "b": 6, "c": 2},
    }
    assert sorted(row for rows in splits.values() for row in rows) == list(range(100))
    assert all(rows == sorted(rows) for rows in splits.values())


def test_a_seed_decides_and_another_seed_decides_otherwise() -> None:
    first = divide(KEYS, STRATA, shares={"test": 0.2}, seed=0)
    assert first == divide(KEYS, STRATA, shares={"test": 0.2}, seed=0)
    other = divide(KEYS, STRATA, shares={"test": 0.2}, seed=1)
    assert len(set(first["test"]) & set(other["test"])) < 10
    assert first["test"][:5] == [0, 11, 23, 35, 37]


def test_the_order_of_rows_does_not_matter() -> None:
    order = random.Random(0).sample(range(100), 100)
    splits = divide(KEYS, STRATA, shares={"test": 0.2}, seed=0)
    shuffled = divide([KEYS[row] for row in order], [STRATA[row] for row in order], shares={"test": 0.2}, seed=0)
    assert {order[place] for place in shuffled["test"]} == set(splits["test"])


def test_copies_of_a_text_stay_on_one_side() -> None:
    keys = [KEYS[number // 2] for number in range(100)]
    splits = divide(keys, ["x"] * 100, shares={"validation": 0.25, "test": 0.25}, seed=3)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 48, "validation": 26, "test": 26}
    sides = [{keys[row] for row in rows} for rows in splits.values()]
    assert sum(map(len, sides)) == len(set.union(*sides)) == 50


def test_every_stratum_reaches_every_split_however_small_the_share() -> None:
    splits = divide(KEYS[:6], ["a", "a", "a", "b", "b", "b"], shares={"validation": 0.01, "test": 0.01}, seed=0)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "validation": 2, "test": 2}
    splits = divide(KEYS[:3], ["a"] * 3, shares={"validation": 0.6, "test": 0.3}, seed=0)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 1, "validation": 1, "test": 1}
    assert too_small(KEYS[:6], ["a"] * 4 + ["b"] * 2, splits=3) == {"b": 2}


def test_white_space_makes_no_other_text() -> None:
    assert text_key(["a  b\n"]) == text_key([" a b"])
    assert text_key(["a b"]) != text_key(["a", "b"]) != text_key(["b", "a"])


def test_a_sample_keeps_the_proportions_and_grows_with_its_limit() -> None:
    ten, twenty = (sample(KEYS, STRATA, limit=limit, seed=0) for limit in (10, 20))
    assert Counter(STRATA[row] for row in ten) == {"a": 6, "b": 3, "c": 1}
    assert set(ten) < set(twenty)
    assert ten == sorted(ten)
    assert sample(KEYS, STRATA, limit=200, seed=0) == list(range(100))


def test_limits_come_after_the_labels_are_known(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    rows = [f"text {number},{'rare' if number == 99 else 'xyz'[number % 3]}" for number in range(100)]
    dataset = BertDataset(config(write("rows.csv", "text,label\n" + "\n".join(rows)), limits={"train": 3}), seed=0)
    splits = dataset.load()
    assert dataset.label_names == ("rare", "x", "y", "z")
    assert len(splits["train"]) == 3
    assert splits.report.limited == {"train": 97}


def test_the_split_seed_is_the_runs_only_where_it_is_null(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.csv", "text,label\n" + "".join(f"text {number},{number % 2}\n" for number in range(60)))
    settings = {"splits": {"validation": 0.2, "test": 0.3}}

    def chosen(seed: int, **more: Any) -> list[str]:
        return BertDataset(config(path, **settings, **more), seed=seed).load()["test"]["source_row"][:]

    assert chosen(1) == chosen(2)
    assert chosen(1, split_seed=None) != chosen(2, split_seed=None)
    assert chosen(42, split_seed=None) == chosen(1)


def test_given_and_made_splits_mix(write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path) -> None:
    write("train.csv", "text,label\n" + "".join(f"text {number},{number % 2}\n" for number in range(20)))
    write("test.csv", "text,label\nlast,0\n")
    splits = BertDataset(config(tmp_path, splits={"validation": 0.2, "test": "test.csv"}), seed=0).load()
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 16, "validation": 4, "test": 1}
    assert splits.report.made == {"validation": 0.2}


def test_ten_thousand_labels_are_shared_out_in_a_moment() -> None:
    counts = {f"label{n}": 3 for n in range(10_000)}
    started = time.process_time()
    quota = quotas(counts, 6_000)
    assert time.process_time() - started < 2.0  # minutes where every row looks at every label
    assert sum(quota.values()) == 6_000
    assert set(quota.values()) == {0, 1}
    assert [name for name, share in quota.items() if share] == list(counts)[:6_000]  # of equal ones the first
