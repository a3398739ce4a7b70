"""The nearest name for a misspelt one."""

from __future__ import annotations

import pytest

from supertrainer.config.nearest import did_you_mean, nearest


@pytest.mark.parametrize(
    ("given", "names", "expected"),
    [
        ("learning_ratee", ["learning_rate", "lr_scheduler_type"], "learning_rate"),
        ("training_bert", ["train_bert", "benchmark_bert", "infer_bert"], "train_bert"),
        ("trackr", ["tracker", "trainer"], "tracker"),
        ("Learning-Rate", ["learning_rate"], "learning_rate"),
        ("minilm", ["bert/minilm", "bert/deberta"], "bert/minilm"),
        ("experimnt", ["experiment", "mode"], "experiment"),
        ("zzz", ["train_bert"], None),
    ],
)
def test_nearest(given: str, names: list[str], expected: str | None) -> None:
    assert nearest(given, names) == expected


def test_where_nothing_is_near_the_names_are_listed() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "one of: a, b."


def test_a_long_list_is_cut() -> None:
    names = [f"option{index:02d}x" for index in range(30)]
    assert did_you_mean("???", names, most=2) == "one of: option00x, option01x, … (30 in all)."
