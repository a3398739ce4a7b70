"""Texts with a label, several labels or a number."""

from __future__ import annotations

import json

import pytest


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_columns_by_their_names(prepare) -> None:
    outcome = prepare("id,review,stars\n1,a fine film,5\n2,a dull film,1\n")
    assert outcome.rows() == [{"text": "a fine film", "label": "5"}, {"text": "a dull film", "label": "1"}]
    assert "columns by their names: text is 'review', label is 'stars'" in outcome.text


def test_columns_by_what_is_in_them(prepare) -> None:
    outcome = prepare(
        "foo,bar\nx,a rather long text\ny,and another one here\nx,the third of the texts\nx,four of a kind\n"
    )
    assert outcome.rows()[0] == {"text": "a rather long text", "label": "x"}


def test_columns_that_can_not_be_told_are_an_error_that_lists_them(prepare) -> None:
    outcome = prepare("foo,bar,baz\nabc,abd,abe\nabf,abg,abh\n")
    assert outcome.code == 2
    assert "There are: foo ('abc'), bar ('abd'), baz ('abe')." in outcome.error
    assert "--columns text=NAME" in outcome.error


def test_columns_that_were_said(prepare) -> None:
    outcome = prepare("foo,bar\nhello,x\nworld,y\n", "--columns", "text=foo", "label=bar")
    assert outcome.rows()[0] == {"text": "hello", "label": "x"}


def test_a_column_that_is_not_there_names_the_nearest(prepare) -> None:
    outcome = prepare("review,stars\na,1\nb,2\n", "--columns", "text=reviw")
    assert (outcome.code, "--columns text=review" in outcome.error) == (2, True)


def test_pairs_of_texts(prepare) -> None:
    outcome = prepare(lines({"premise": "It rains.", "hypothesis": "It is wet.", "label": 0}), name="nli.jsonl")
    assert outcome.rows() == [{"text": "It rains.", "text_pair": "It is wet.", "label": "0"}]


@pytest.mark.parametrize(("value", "written"), [(1, "1"), (1.0, "1"), (True, "true"), ("x", "x")])
def test_labels_become_text(prepare, value, written) -> None:
    assert prepare(lines({"text": "a", "label": value}), name="rows.jsonl").rows() == [{"text": "a", "label": written}]


def test_lists_of_labels(prepare) -> None:
    outcome = prepare(lines({"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}), name="rows.jsonl")
    assert outcome.rows() == [{"text": "a", "labels": ["x", "y"]}, {"text": "b", "labels": []}]
    assert outcome.report["task"] == "multi_label"


def test_labels_in_one_cell(prepare) -> None:
    outcome = prepare("text,label\nfirst,x|y\nsecond,\nthird,y\n", "--task", "multi_label")
    assert [row["labels"] for row in outcome.rows()] == [["x", "y"], [], ["y"]]


def test_a_column_per_label(prepare) -> None:
    content = "comment_text,toxic,rude\nhello,0,0\nfool,1,1\nhm,maybe,0\n"
    outcome = prepare(content, "--label-columns", "toxic", "rude")
    assert outcome.rows() == [{"text": "hello", "labels": []}, {"text": "fool", "labels": ["toxic", "rude"]}]
    assert outcome.report["dropped"]["malformed"]["examples"][0]["field"] == "toxic"


def test_decimal_commas(prepare) -> None:
    outcome = prepare("text;score\nfine;3,5\nbest;1.234,25\nlow;-2\n", "--task", "regression")
    assert [row["label"] for row in outcome.rows()] == [3.5, 1234.25, -2.0]
    assert "decimal comma" in outcome.text


def test_numbers_with_decimals_are_a_regression(prepare) -> None:
    outcome = prepare("text,score\nfine,3.5\nlow,1\n")
    assert (outcome.report["task"], outcome.rows()[0]["label"]) == ("regression", 3.5)


@pytest.mark.parametrize("value", ["much", "nan", "inf", "1_0", ""])
def test_what_is_no_number_is_malformed(prepare, value) -> None:
    outcome = prepare(f"text,score\nfine,3.5\nlow,{value}\n", "--task", "regression")
    assert outcome.report["dropped"]["malformed"]["examples"][0]["row"] == 3


def test_fasttext(prepare) -> None:
    outcome = prepare("__label__a __label__b two labels\n__label__a one label\n", name="train.txt")
    assert outcome.rows() == [{"text": "two labels", "labels": ["a", "b"]}, {"text": "one label", "labels": ["a"]}]


def test_kept_columns(prepare) -> None:
    assert prepare("id,text,label\n7,a,x\n8,b,y\n", "--keep", "id").rows()[0] == {"text": "a", "label": "x", "id": "7"}


@pytest.mark.parametrize(
    ("bad", "field", "why"),
    [
        ('{"text": "a", "label": "x"', "the line", "is no JSON"),
        ("[1, 2]", "the row", "is no object"),
        ('{"text": 5, "label": "x"}', "text", "is no text but 5"),
        ('{"label": "x"}', "text", "is missing"),
        ('{"text": "a", "label": null}', "label", "is missing"),
        ('{"text": "a", "label": 0.5}', "label", "is no label but 0.5"),
        ('{"text": "\\ud800", "label": "x"}', "text", "half of a surrogate pair"),
    ],
)
def test_malformed_rows_are_named_with_file_row_and_field(prepare, bad, field, why) -> None:
    good = lines({"text": "a", "label": "x"}, {"text": "b", "label": "y"}, {"text": "c", "label": "y"})
    outcome = prepare(f"{good}{bad}\n", name="rows.jsonl")
    (example,) = outcome.report["dropped"]["malformed"]["examples"]
    assert (example["file"], example["row"], example["field"]) == ("rows.jsonl", 4, field)
    assert why in example["why"]
    assert len(outcome.rows()) == 3


@pytest.mark.parametrize(
    "content",
    [
        '[{"text": "a", "label": "x"},\n {"text": "b", "label": "y"}]',
        '{"data": [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]}',
        '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n',
    ],
)
def test_forms_of_json(prepare, content) -> None:
    assert prepare(content, name="rows.json").rows() == [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]


def test_a_json_list_is_read_piece_by_piece(prepare, monkeypatch) -> None:
    monkeypatch.setattr("supertrainer.data.prepare.containers.CHUNK_CHARACTERS", 7)
    rows = [{"text": f"text {n} [,]", "label": "ab"[n % 2]} for n in range(9)]
    assert prepare(json.dumps(rows, indent=1), name="rows.json").rows() == rows


def test_a_number_at_the_end_of_a_piece_is_one_row(prepare, monkeypatch) -> None:
    monkeypatch.setattr("supertrainer.data.prepare.containers.CHUNK_CHARACTERS", 5)
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}, 123456789, 7]
    outcome = prepare(json.dumps(rows), name="rows.json")
    assert [example["row"] for example in outcome.report["dropped"]["malformed"]["examples"]] == [3, 4]


def test_a_json_list_that_is_cut_names_the_line(prepare) -> None:
    outcome = prepare('[{"text": "a", "label": "x"},\n{"text": "b", "la', name="rows.json")
    assert outcome.code == 2
    assert "rows.json:2: no JSON" in outcome.error


def test_parquet(prepare, tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", "b"], "label": [0, 1]}), tmp_path / "rows.parquet")
    outcome = prepare((tmp_path / "rows.parquet").read_bytes(), name="rows.parquet")
    assert outcome.rows() == [{"text": "a", "label": "0"}, {"text": "b", "label": "1"}]


def test_a_file_per_class(prepare) -> None:
    outcome = prepare({"pos.txt": "fine\n\ngreat fun\n", "neg.txt": "dull\n"}, "--from", "class_files")
    assert outcome.rows() == [
        {"text": "dull", "label": "neg"},
        {"text": "fine", "label": "pos"},
        {"text": "great fun", "label": "pos"},
    ]


def test_a_file_per_class_is_told_from_prose(prepare) -> None:
    assert prepare({"pos.txt": "fine\ngreat\n", "neg.txt": "dull\n"}).report["layout"] == "class_files"
    prose = "A paragraph.\n\nAnother.\n"
    assert prepare({"pos.txt": prose, "neg.txt": prose + "More.\n"}).report["layout"] == "text"


def test_a_folder_per_class_below_folders_of_splits(prepare) -> None:
    files = {"train/pos/1.txt": "fine", "train/neg/1.txt": "dull\n", "test/pos/9.txt": "good", "README.md": "about"}
    outcome = prepare(files)
    assert outcome.rows() == [{"text": "dull", "label": "neg"}, {"text": "fine", "label": "pos"}]
    assert outcome.rows("test") == [{"text": "good", "label": "pos"}]
    assert outcome.report["ignored"] == ["README.md"]


@pytest.mark.parametrize(
    ("unit", "texts"),
    [("line", ["one", "two", "three"]), ("paragraph", ["one\ntwo", "three"]), ("file", ["one\ntwo\n\nthree"])],
)
def test_raw_text(prepare, unit, texts) -> None:
    outcome = prepare("one\ntwo\n\nthree\n", "--text-unit", unit, name="book.txt")
    assert [row["text"] for row in outcome.rows()] == texts
