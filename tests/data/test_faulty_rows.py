"""What is wrong with rows is found before training, every kind at once, with row numbers; or dropped and counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import DataError
from supertrainer.data.bert import BertDataset
from supertrainer.data.validation import require_step


def problems(config: Any) -> list[str]:
    with pytest.raises(DataError) as raised:
        BertDataset(config, seed=0).load()
    return [problem.what for problem in raised.value.problems]


def csv(*rows: tuple[str, str]) -> str:
    return "text,label\n" + "".join(f"{text},{label}\n" for text, label in rows)


def test_every_kind_of_fault_is_told_at_once(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("train.csv", csv(("fine", "pos"), ("", "neg"), ("  ", "pos"), ("dull", "neg"), ("so so", "")))
    write("test.csv", csv(("new", "pos"), ("odd", "posi"), (" dull ", "pos")))
    assert problems(config(tmp_path)) == [
        "train: rows without text (2): train.csv:3, train.csv:4.",
        "train: rows without label (1): train.csv:6.",
        "test: rows with a label that no train row has (1): test.csv:3 ('posi', nearest: 'pos').",
        "train: rows that stand in two splits (1): train.csv:5 ('neg') = test.csv:4 ('pos').",
    ]


def test_five_rows_are_named_and_the_rest_counted(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.csv", csv(("fine", "pos"), ("dull", "neg"), *[("", "pos")] * 7))
    assert problems(config(path)) == [
        "train: rows without text (7): rows.csv:4, rows.csv:5, rows.csv:6, rows.csv:7, rows.csv:8 and 2 more."
    ]


def test_values_that_are_no_text_are_named_with_their_type(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    values = ["fine", 3, 0.5, None, float("nan"), True, ["a"], "\ud800"]
    path = write("rows.jsonl", "".join(json.dumps({"text": value, "label": "x"}) + "\n" for value in values))
    assert problems(config(path))[:2] == [
        "rows.jsonl: rows with no text in the column 'text' (5): rows.jsonl:2 (int 3), rows.jsonl:3 (float 0.5), "
        "rows.jsonl:6 (bool True), rows.jsonl:7 (list ['a']), rows.jsonl:8 (str '\\ud800').",
        "train: rows without text (2): rows.jsonl:4, rows.jsonl:5.",
    ]


def test_values_that_are_no_label_are_named(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    values = [0, 1, 0.5, ["a", "b"], {"a": 1}]
    path = write("rows.jsonl", "".join(json.dumps({"text": f"t{n}", "label": v}) + "\n" for n, v in enumerate(values)))
    assert problems(config(path)) == [
        "rows.jsonl: rows with no label in the column 'label' (3): rows.jsonl:3 (float 0.5), "
        "rows.jsonl:4 (list ['a', 'b']), rows.jsonl:5 (dict {'a': 1})."
    ]


def test_labels_outside_the_list_are_named_with_the_nearest(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.csv", csv(("a", "sports"), ("b", "tech"), ("c", "sport"), ("d", "Tech"), ("e", "x")))
    assert problems(config(path, labels=["sports", "tech"])) == [
        "train: rows with a label that is none of sports, tech (3): rows.csv:4 ('sport', nearest: 'sports'), "
        "rows.csv:5 ('Tech', nearest: 'tech'), rows.csv:6 ('x')."
    ]
    assert problems(config(path, labels={"sports": "s", "tech": "t", "x": "t"})) == [
        "train: rows with a label that dataset.labels doesn't map (it has sports, tech, x) (2): "
        "rows.csv:4 ('sport', nearest: 'sports'), rows.csv:5 ('Tech', nearest: 'tech')."
    ]


def test_policies_drop_and_count(write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path) -> None:
    write("train.csv", csv(("a", "x"), ("", "x"), ("b", "y"), ("a  ", "x"), ("c", ""), ("t", "x"), ("v", "y")))
    write("dev.csv", csv(("v", "y"), ("t", "x")))
    write("test.csv", csv(("t", "x"), ("u", "y")))
    settings = dict.fromkeys(
        ("on_empty_text", "on_missing_label", "on_repeated_rows", "on_repeated_across_splits"), "drop"
    )
    splits = BertDataset(config(tmp_path, **settings), seed=0).load()
    assert {split: rows["source_row"][:] for split, rows in splits.items()} == {
        "train": ["train.csv:2", "train.csv:4"],
        "validation": ["dev.csv:2"],
        "test": ["test.csv:2", "test.csv:3"],
    }
    assert splits.report.as_dict() == {
        "read": {"train": 7, "validation": 2, "test": 2},
        "dropped": {
            "train": {"without text": 1, "without label": 1, "repeated text": 1, "text of a later split": 2},
            "validation": {"text of a later split": 1},
        },
        "repeated": {},
        "conflicting": {},
        "made": {},
        "stratified": False,
        "limited": {},
        "rows": {"train": 2, "validation": 1, "test": 2},
        "labels": {"train": {"x": 1, "y": 1}, "validation": {"x": 0, "y": 1}, "test": {"x": 1, "y": 1}},
        "notes": [],
    }
    assert splits.report.lines()[3] == "train: 1 rows dropped: without text"


def test_repeats_within_a_split_are_counted_or_refused(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.csv", csv(("a", "x"), ("a ", "x"), ("a", "y"), ("b", "y")))
    kept = BertDataset(config(path), seed=0).load().report
    assert (kept.rows, kept.repeated, kept.conflicting) == ({"train": 4}, {"train": 2}, {"train": 1})
    conflict = "train: rows that repeat a text with another label (1): rows.csv:4 ('y') = rows.csv:2 ('x')."
    assert problems(config(path, on_repeated_rows="drop")) == [conflict]
    repeat = "train: rows that repeat the text of an earlier row of the split (1): rows.csv:3 ('x') = rows.csv:2 ('x')."
    assert problems(config(path, on_repeated_rows="error")) == [repeat, conflict]


def test_one_class_is_no_choice_and_ids_are_no_classes(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    one = write("one.csv", csv(("a", "x"), ("b", "x")))
    assert problems(config(one)) == ["all 2 train rows have the label 'x'."]
    ids = write("ids.csv", csv(*[(f"text {number}", f"id{number}") for number in range(30)]))
    assert problems(config(ids)) == ["the column 'label' holds 30 different labels in 30 train rows."]


def test_a_class_needs_a_row_in_every_made_split(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    rows = [(f"text {number}", "x") for number in range(8)] + [("rare", "y"), ("rare", "y"), ("other", "y")]
    settings = {"splits": {"validation": 0.2, "test": 0.2}}
    assert problems(config(write("rows.csv", csv(*rows)), **settings)) == [
        "the label 'y' has 2 different texts: too few for train, validation, test."
    ]


def test_a_split_that_is_dropped_whole_is_an_error(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("train.csv", csv(("a", "x"), ("b", "y")))
    write("test.csv", csv(("c", ""), ("d", "")))
    assert problems(config(tmp_path, on_missing_label="drop")) == ["test has no rows left."]


def test_without_train_rows_the_labels_must_be_known(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("test.csv", csv(("a", "x"), ("b", "y")))
    assert problems(config(tmp_path)) == ["there are no train rows."]
    known = BertDataset(config(tmp_path), seed=0, label_names=["y", "x"])
    assert known.load()["test"]["label"][:] == [1, 0]


def test_fewer_rows_than_a_step_names_the_smallest_fix() -> None:
    require_step(32, global_batch_size=32)
    with pytest.raises(DataError) as raised:
        require_step(12, global_batch_size=32)
    assert str(raised.value.problems[0]) == (
        "the train split has 12 rows, fewer than trainer.global_batch_size=32.\n"
        "  Why: not one optimizer step can be filled.\n"
        "  Fix: trainer.global_batch_size=12 or less, or 20 more train rows."
    )
