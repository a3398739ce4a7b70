"""A file that can't be read as it stands is a DataError with file and line; all of them are told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.bert import BertDataset

GOOD = "text,label\nfine,pos\ndull,neg\n"


def error(config: Any) -> str:
    """What loading says, without the class names in front."""
    with pytest.raises(DataError) as raised:
        BertDataset(config, seed=0).load()
    return "\n".join(str(problem) for problem in raised.value.problems)


def test_ragged_csv_lines_are_counted_and_named(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.csv", GOOD + "so, so,neg\n" * 7 + "short\n")
    message = error(config(path))
    assert message.startswith(
        "rows.csv: rows with more or fewer cells than the 2 columns (8): rows.csv:4 (3), rows.csv:5 (3), "
        "rows.csv:6 (3), rows.csv:7 (3), rows.csv:8 (3) and 3 more.\n"
    )
    assert "dataset.csv.quote (null for unquoted files)" in message


def test_an_open_quote_names_the_line_where_the_row_starts(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    assert error(config(write("a.csv", GOOD + '"never closed,pos\nmore\nmore\n'))).startswith(
        "a.csv:4: unexpected end of data.\n"
    )
    assert error(config(write("b.tsv", 'text\tlabel\nfine\tpos\n"Great" movie\tpos\n'))).startswith(
        "b.tsv:3: '\t' expected after '\"'.\n"
    )


@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.json"])
def test_an_empty_file_is_said_to_be_empty(name: str, write: Callable[..., Path], config: Callable[..., Any]) -> None:
    assert error(config(write(name, ""))).startswith(f"{name} is empty.")
    assert error(config(write(name, " \n\n"))).startswith(f"{name} is empty.")


def test_a_header_alone_is_no_set(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    assert error(config(write("rows.csv", "text,label\n"))).startswith("rows.csv has no rows below its header.")


def test_a_column_named_twice(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    assert error(config(write("rows.csv", "text,text,label\na,b,c\n"))).startswith(
        "rows.csv:1: the header names the column 'text' twice."
    )


def test_bad_json_lines_are_named_with_their_columns(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", \n[1]\n{"text": "c", "label": "y"}\n')
    assert error(config(path)).splitlines() == [
        "rows.jsonl: lines that are no JSON (1): rows.jsonl:2 "
        "(Expecting property name enclosed in double quotes, column 15).",
        "  Fix: one JSON object a line; dataset.format=json reads one list of objects.",
        "rows.jsonl: rows that are no JSON objects (1): rows.jsonl:3.",
        '  Fix: write every row as {"column": value, …}.',
    ]
    assert error(config(write("rows.json", '[{"text": "a"},\n {"text": }]'))).startswith(
        "rows.json:2: no JSON: Expecting value, column 11."
    )
    assert "rows.json has no rows that can be read." in error(config(write("rows.json", "[]")))


def test_a_wrong_encoding_names_line_byte_and_a_likely_one(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    latin = write("latin.csv", "text,label\nfine,pos\nna\u00efve,neg\n".encode("latin-1"))
    assert error(config(latin)).startswith("latin.csv:3: byte 0xef is not utf-8.\n  Fix: dataset.encoding=cp1252")
    wide = write("wide.csv", GOOD.encode("utf-16"))
    assert "dataset.encoding=utf-16" in error(config(wide))
    assert error(config(latin, fallback_encoding="ascii")).startswith("latin.csv:3: byte 0xef is not ascii.")


@pytest.mark.parametrize(("name", "format"), [("rows.parquet", "parquet"), ("rows.arrow", "arrow")])
def test_other_content_than_the_name_says(
    name: str, format: str, write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    assert error(config(write(name, GOOD))).startswith(f"{name} can't be read as {format}: ")
    assert error(config(write("rows.csv.gz", GOOD))).startswith("rows.csv.gz can't be read: Not a gzipped file")


def test_a_missing_column_names_those_there_are_and_the_nearest(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.csv", "id,TEXT,class\n1,a,b\n")
    assert error(config(path)).splitlines() == [
        "rows.csv has no column 'text' (dataset.columns.text). It has: id, TEXT, class.",
        "  Fix: dataset.columns.text=TEXT.",
        "rows.csv has no column 'label' (dataset.columns.label). It has: id, TEXT, class.",
        "  Fix: dataset.columns.label=class.",
    ]


def test_the_nearest_column_is_found_whatever_its_case(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.csv", "text,label\na,b\n")
    assert "Fix: dataset.columns.text=text." in error(config(path, columns={"text": "TEXT", "label": "label"}))


def test_a_header_in_one_piece_shows_the_delimiter(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    assert 'Fix: dataset.csv.delimiter=";": the header' in error(config(write("rows.csv", "text;label\na;b\n")))
    assert r'Fix: dataset.csv.delimiter="\t": the header' in error(config(write("rows.csv", "text\tlabel\na\tb\n")))


def test_faults_of_several_files_come_together(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("train.csv", GOOD)
    write("dev.csv", "txt,label\na,pos\n")
    write("test.csv", "")
    message = error(config(tmp_path, splits={"train": "train.csv", "validation": "dev.csv", "test": "test.csv"}))
    assert "dev.csv has no column 'text'" in message
    assert "test.csv is empty." in message


def test_split_files_that_are_not_there_are_named_with_the_nearest(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("train.csv", GOOD)
    message = error(config(tmp_path, splits={"train": "trian.csv", "validation": "dev.csv", "test": "gone-*.csv"}))
    assert message.splitlines() == [
        f"dataset.splits.train=trian.csv: there is no {tmp_path}/trian.csv.",
        "  Fix: dataset.splits.train=train.csv.",
        f"dataset.splits.validation=dev.csv: there is no {tmp_path}/dev.csv.",
        f"  Fix: a file of {tmp_path}: train.csv.",
        f"dataset.splits.test=gone-*.csv: there is no {tmp_path}/gone-*.csv.",
        f"  Fix: a file of {tmp_path}: train.csv.",
    ]


def test_a_source_that_went_away(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("gone.csv", GOOD)
    settings = config(path)
    path.unlink()
    with pytest.raises(ConfigError, match=r"gone\.csv is not there"):
        BertDataset(settings, seed=0).load()


def test_a_directory_whose_content_cannot_be_told(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("set/readme.md", "hello")
    assert "holds no rows" in error(config(tmp_path / "set"))
    write("two/a.csv", GOOD)
    write("two/b.csv", GOOD)
    assert "holds a.csv, b.csv: none is named after a split." in error(config(tmp_path / "two"))
    odd = write("rows.data", GOOD)
    assert error(config(odd)).startswith(
        "rows.data: what the file holds can't be told from its name.\n  Fix: dataset.format=csv, say."
    )
    assert len(BertDataset(config(odd, format="csv"), seed=0).load()["train"]) == 2


def test_broken_saved_directories(write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path) -> None:
    write("saved/state.json", "{}")
    assert "saved can't be read as a saved `datasets` directory" in error(config(tmp_path / "saved"))


def test_an_empty_label_folder(write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path) -> None:
    write("pos/1.txt", "fine")
    write("neg/1.txt", "dull")
    (tmp_path / "empty").mkdir()
    assert f"{tmp_path}/empty holds no .txt file." in error(config(tmp_path))
