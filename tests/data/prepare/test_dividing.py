"""Made splits are stratified, seeded, and keep groups and repeated texts together."""

from __future__ import annotations

import json
from collections import Counter


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


SPLITS = ("train", "validation", "test")
ROWS = [{"text": f"text {n}", "label": "a" if n % 10 < 7 else "b" if n % 10 < 9 else "c"} for n in range(200)]


def test_labels_have_their_shares_to_the_row(prepare) -> None:
    outcome = prepare(lines(*ROWS), name="x.jsonl", split=True)
    counts = {split: Counter(row["label"] for row in outcome.rows(split)) for split in SPLITS}
    assert counts == {
        "train": {"a": 112, "b": 32, "c": 16},
        "validation": {"a": 14, "b": 4, "c": 2},
        "test": {"a": 14, "b": 4, "c": 2},
    }


def test_every_row_is_in_one_split_in_its_order(prepare) -> None:
    outcome = prepare(lines(*ROWS), name="x.jsonl", split=True)
    numbers = [[int(row["text"].split()[1]) for row in outcome.rows(split)] for split in SPLITS]
    assert sorted(number for part in numbers for number in part) == list(range(200))
    assert all(part == sorted(part) for part in numbers)


def test_the_seed_chooses_and_the_same_seed_chooses_the_same(prepare) -> None:
    words = ("--splits", "test=10%")
    first = prepare(lines(*ROWS), *words, name="x.jsonl", split=True).rows("test")
    assert prepare(lines(*ROWS), *words, name="x.jsonl", split=True).rows("test") == first
    assert prepare(lines(*ROWS), *words, "--seed", "7", name="x.jsonl", split=True).rows("test") != first


def test_a_row_more_changes_little_else(prepare) -> None:
    before = {row["text"] for row in prepare(lines(*ROWS), name="x.jsonl", split=True).rows("test")}
    after = {
        row["text"]
        for row in prepare(lines({"text": "new", "label": "a"}, *ROWS), name="x.jsonl", split=True).rows("test")
    }
    assert len(before & after) >= len(before) - 2


def test_a_label_too_rare_to_be_divided_stays_in_train(prepare) -> None:
    outcome = prepare(
        lines(*ROWS, {"text": "p", "label": "rare"}, {"text": "q", "label": "rare"}), name="x.jsonl", split=True
    )
    assert sum(row["label"] == "rare" for row in outcome.rows()) == 2
    assert "labels with too few different texts for every split, all of them in train: rare" in outcome.text


def test_repeated_texts_stay_on_one_side(prepare) -> None:
    rows = [{"text": f"text {n // 2}" + " " * (n % 2), "label": "ab"[n % 4 // 2]} for n in range(200)]
    outcome = prepare(lines(*rows), "--clean", "none", name="x.jsonl", split=True)
    texts = [{row["text"].strip() for row in outcome.rows(split)} for split in SPLITS]
    assert [len(part) for part in texts] == [80, 10, 10]
    assert len(set.union(*texts)) == 100


def test_groups_stay_together_with_the_labels_near_their_shares(prepare) -> None:
    rows = [{"text": f"t{n}", "label": "ab"[n % 2], "document": n // 5} for n in range(300)]
    outcome = prepare(lines(*rows), "--group", "document", "--keep", "document", name="x.jsonl", split=True)
    documents = {split: {row["document"] for row in outcome.rows(split)} for split in SPLITS}
    assert sum(map(len, documents.values())) == 60
    for split, rows_wanted in (("train", 240), ("validation", 30), ("test", 30)):
        counts = Counter(row["label"] for row in outcome.rows(split))
        assert abs(sum(counts.values()) - rows_wanted) <= 5
        assert abs(counts["a"] - counts["b"]) <= 6


def test_groups_that_share_a_text_are_one(prepare) -> None:
    """Group 2k and group 2k + 1 have a text in common."""
    rows = [{"text": f"shared {n // 10}" if n % 5 == 0 else f"t{n}", "label": "a", "g": n // 5} for n in range(400)]
    outcome = prepare(lines(*rows), "--group", "g", "--keep", "g", "--clean", "none", name="x.jsonl", split=True)
    where = {row["g"]: split for split in SPLITS for row in outcome.rows(split)}
    assert [where[2 * k] == where[2 * k + 1] for k in range(40)] == [True] * 40
    assert {split: len(outcome.rows(split)) for split in SPLITS} == {"train": 320, "validation": 40, "test": 40}


def test_large_groups_find_their_place_first(prepare) -> None:
    sizes = [10] * 10 + [100] * 8
    rows = [{"text": f"t{g} {n}", "label": "a", "g": g} for g, size in enumerate(sizes) for n in range(size)]
    outcome = prepare(lines(*rows), "--group", "g", name="x.jsonl", split=True)
    assert [len(outcome.rows(split)) for split in SPLITS] == [700, 100, 100]


def test_a_row_without_its_group_is_malformed(prepare) -> None:
    rows = [{"text": f"t{n}", "label": "ab"[n % 2], "g": n} for n in range(20)] + [{"text": "x", "label": "a"}]
    outcome = prepare(lines(*rows), "--group", "g", name="x.jsonl")
    assert outcome.report["dropped"]["malformed"]["examples"][0]["why"] == "is missing, and --group needs it"


def test_several_labels_are_near_their_shares(prepare) -> None:
    rows = [
        {"text": f"t{n}", "labels": [name for name, every in (("a", 2), ("b", 5), ("c", 20)) if n % every == 0]}
        for n in range(400)
    ]
    outcome = prepare(lines(*rows), name="x.jsonl", split=True)
    for split, share in (("train", 0.8), ("validation", 0.1), ("test", 0.1)):
        counts = Counter(label for row in outcome.rows(split) for label in row["labels"])
        for label, total in (("a", 200), ("b", 80), ("c", 20)):
            assert abs(counts[label] - share * total) <= 1
        assert abs(len(outcome.rows(split)) - share * 400) <= 2


def test_too_few_rows_are_an_error(prepare) -> None:
    outcome = prepare(lines(*ROWS[:2]), name="x.jsonl", split=True)
    assert (outcome.code, "too few for train, validation and test" in outcome.error) == (2, True)


def test_splits_of_the_source_are_kept_and_none_is_made(prepare) -> None:
    files = {"train.csv": "text,label\na,x\nb,y\n", "dev.csv": "text,label\nc,x\nd,y\n"}
    outcome = prepare(files, split=True)
    assert [row["text"] for row in outcome.rows("validation")] == ["c", "d"]
    assert list(outcome.report["splits"]) == ["train", "validation"]


def test_a_split_is_made_beside_those_of_the_source(prepare) -> None:
    train = "text,label\n" + "".join(f"t{n},{'xy'[n % 2]}\n" for n in range(40))
    outcome = prepare(
        {"train.csv": train, "test.csv": "text,label\nc,x\nd,y\n"}, "--splits", "validation=0.1", split=True
    )
    assert [len(outcome.rows(split)) for split in SPLITS] == [36, 4, 2]
    refused = prepare({"train.csv": train, "test.csv": "text,label\nc,x\nd,y\n"}, "--splits", "test=0.1", split=True)
    assert "the source has a test split already" in refused.error


def test_a_label_that_train_lacks_is_told(prepare) -> None:
    outcome = prepare({"train.csv": "text,label\na,x\nb,y\n", "test.csv": "text,label\nc,x\nd,z\n"})
    assert "labels of test that no train row has (rules rename_labels, drop_labels): z" in outcome.text


def test_files_for_splits_by_hand(prepare) -> None:
    files = {"a.csv": "text,label\na,x\nb,y\n", "b.csv": "text,label\nc,x\nd,y\n", "c.csv": "text,label\ne,x\n"}
    outcome = prepare(files, "--files", "train=a.csv", "test=b.csv", split=True)
    assert [len(outcome.rows(split)) for split in ("train", "test")] == [2, 2]


def test_rows_in_two_splits(prepare) -> None:
    files = {"train.csv": "text,label\nsame,x\nb,y\n", "test.csv": "text,label\nsame ,x\nd,y\n"}
    dropped = prepare(files)
    assert [row["text"] for row in dropped.rows()] == ["b"]
    example = dropped.report["dropped"]["stands in a later split"]["examples"][0]
    assert example == {"file": "train.csv", "row": 2, "field": "text", "why": "its text stands in test"}
    refused = prepare(files, "--across-splits", "error")
    assert (refused.code, "train.csv:2 its text stands in test" in refused.error) == (2, True)
    assert prepare(files, "--across-splits", "keep").report["across_splits"] == {"train/test": 1}
