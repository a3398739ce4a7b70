"""The same rows in every format come out the same, as text, with the place of each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest

from supertrainer.core.errors import DataError
from supertrainer.data.bert import BertDataset

TEXTS = ["fine", "01", "NA", 'a "quoted", long\ntext', "null"]
LABELS = ["pos", "neg", "pos", "neg", "neg"]


def rows_of(dataset: BertDataset, split: str = "train") -> list[tuple[str, str]]:
    rows = dataset.load()[split]
    return [(row["text"], dataset.label_names[row["label"]]) for row in rows]


def table() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"id": list(range(5)), "text": TEXTS, "label": LABELS})


def objects() -> list[dict[str, Any]]:
    return [
        {"id": number, "text": text, "label": label}
        for number, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]


def written(format: str, folder: Path) -> Path:
    """The rows in a format; the path of what was written."""
    path = folder / f"rows.{format}"
    csv = 'id,text,label\n0,fine,pos\n1,01,neg\n2,NA,pos\n3,"a ""quoted"", long\ntext",neg\n4,null,neg\n'
    match format:
        case "csv":
            path.write_text(csv)
        case "csv.gz":
            path.write_bytes(gzip.compress(csv.encode()))
        case "tsv":
            path.write_text(csv.replace(", long", "; long").replace(",", "\t").replace("; long", ", long"))
        case "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in objects()))
        case "json":
            path.write_text(json.dumps(objects(), indent=1))
        case "lines.json":
            path.write_text("".join(json.dumps(row) + "\n" for row in objects()))
        case "parquet":
            table().to_parquet(path)
        case "feather":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().data.table.schema) as writer:
                writer.write_table(table().data.table)
        case "arrow":
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table().data.table.schema) as writer:
                writer.write_table(table().data.table)
        case "saved":
            table().save_to_disk(path)
        case "folders":
            for number, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)):
                (path / label).mkdir(parents=True, exist_ok=True)
                (path / label / f"{number}.txt").write_text(text)
    return path


PLACES = {
    "csv": ["rows.csv:2", "rows.csv:3", "rows.csv:4", "rows.csv:5", "rows.csv:7"],
    "csv.gz": ["rows.csv.gz:2", "rows.csv.gz:3", "rows.csv.gz:4", "rows.csv.gz:5", "rows.csv.gz:7"],
    "tsv": ["rows.tsv:2", "rows.tsv:3", "rows.tsv:4", "rows.tsv:5", "rows.tsv:7"],
    "jsonl": [f"rows.jsonl:{line}" for line in (1, 2, 3, 4, 5)],
    "json": [f"rows.json row {row}" for row in (1, 2, 3, 4, 5)],
    "lines.json": [f"rows.lines.json:{line}" for line in (1, 2, 3, 4, 5)],
    "parquet": [f"rows.parquet row {row}" for row in (1, 2, 3, 4, 5)],
    "feather": [f"rows.feather row {row}" for row in (1, 2, 3, 4, 5)],
    "arrow": [f"rows.arrow row {row}" for row in (1, 2, 3, 4, 5)],
    "saved": [f"rows.saved row {row}" for row in (1, 2, 3, 4, 5)],
}


@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # `datasets` leaves the file that save_to_disk wrote to the collector
@pytest.mark.parametrize("format", PLACES)
def test_every_format_gives_the_same_rows(format: str, tmp_path: Path, config: Callable[..., Any]) -> None:
    dataset = BertDataset(config(written(format, tmp_path)), seed=0)
    assert rows_of(dataset) == list(zip(TEXTS, LABELS, strict=True))
    assert dataset.load()["train"]["source_row"][:] == PLACES[format]


def test_folders_are_labels_and_files_are_rows(tmp_path: Path, config: Callable[..., Any]) -> None:
    dataset = BertDataset(config(written("folders", tmp_path)), seed=0)
    assert rows_of(dataset) == [("01", "neg"), (TEXTS[3], "neg"), ("null", "neg"), ("fine", "pos"), ("NA", "pos")]
    assert dataset.load()["train"]["source_row"][:] == ["neg/1.txt", "neg/3.txt", "neg/4.txt", "pos/0.txt", "pos/2.txt"]


def test_a_saved_dict_gives_its_splits_and_class_names(tmp_path: Path, config: Callable[..., Any]) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["sad", "glad", "mad"])}
    )
    parts = {
        name: datasets.Dataset.from_dict({"text": [f"{name} a", f"{name} b"], "label": [1, 0]}, features=features)
        for name in ("train", "validation", "extra")
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    dataset = BertDataset(config(tmp_path / "saved"), seed=0)
    assert list(dataset.load()) == ["train", "validation"]
    assert dataset.label_names == ("sad", "glad", "mad")
    assert rows_of(dataset, "validation") == [("validation a", "glad"), ("validation b", "sad")]
    named = BertDataset(config(tmp_path / "saved", splits={"train": "train", "test": "extra"}), seed=0)
    assert rows_of(named, "test") == [("extra a", "glad"), ("extra b", "sad")]


def test_class_names_survive_a_parquet_file_and_minus_one_is_no_label(
    tmp_path: Path, config: Callable[..., Any]
) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["sad", "glad"])}
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
    rows.to_parquet(tmp_path / "rows.parquet")
    dataset = BertDataset(config(tmp_path / "rows.parquet", on_missing_label="drop"), seed=0)
    assert rows_of(dataset) == [("a", "glad"), ("b", "sad")]
    assert dataset.load().report.dropped == {"train": {"without label": 1}}


def test_whole_number_labels_are_sorted_by_value(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    lines = [{"text": f"t{label}", "label": label} for label in (10, 9, 1, 2.0, True)]
    path = write("rows.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    assert BertDataset(config(path), seed=0).load() is not None
    assert BertDataset(config(path), seed=0).label_names == ("1", "2", "9", "10", "true")
    csv = write("rows.csv", "text,label\na,10\nb,9\nc,01\n")
    assert BertDataset(config(csv), seed=0).label_names == ("9", "10", "01")


def test_excel_and_headerless_and_unquoted_files_are_read(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    excel = write("excel.csv", "\ufefftext;label\r\nfine;pos\r\ndull;neg\r\n")
    assert rows_of(BertDataset(config(excel, csv={"delimiter": ";"}), seed=0)) == [("fine", "pos"), ("dull", "neg")]
    utf16 = write("wide.csv", "text\tlabel\nfein\tpos\nöde\tneg\n".encode("utf-16"))
    settings = {"encoding": "utf-16", "csv": {"delimiter": "\t"}}
    assert rows_of(BertDataset(config(utf16, **settings), seed=0)) == [("fein", "pos"), ("öde", "neg")]
    bare = write("bare.csv", '1,title,"fine"\n2,title,dull\n')
    settings = {"csv": {"column_names": ["label", "title", "text"]}}
    assert rows_of(BertDataset(config(bare, **settings), seed=0)) == [("fine", "1"), ("dull", "2")]
    unquoted = write("glue.tsv", 'text\tlabel\n"Great" movie\tpos\na 5" screen\tneg\n')
    settings = {"csv": {"quote": None}}
    assert rows_of(BertDataset(config(unquoted, **settings), seed=0)) == [
        ('"Great" movie', "pos"),
        ('a 5" screen', "neg"),
    ]


def test_a_cell_may_be_longer_than_the_csv_modules_limit(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.csv", f"text,label\n{'x' * 200_000},a\nshort,b\n")
    assert len(BertDataset(config(path), seed=0).load()["train"][0]["text"]) == 200_000


def test_unusual_line_ends_inside_json_belong_to_the_text(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.jsonl", '{"text": "a\u2028b", "label": "x"}\r\n\r\n{"text": "c\x85d", "label": "y"}\r\n')
    dataset = BertDataset(config(path), seed=0)
    assert rows_of(dataset) == [("a\u2028b", "x"), ("c\x85d", "y")]
    assert dataset.load()["train"]["source_row"][:] == ["rows.jsonl:1", "rows.jsonl:3"]


def test_a_directory_names_its_splits_and_shards(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    for name, text in (("train-00000-of-00002", "a"), ("train-00001-of-00002", "b"), ("dev", "c"), ("test", "d")):
        path = write(f"set/{name}.csv", f"text,label\n{text}1,x\n{text}2,y\n")
    dataset = BertDataset(config(path.parent), seed=0)
    assert {split: rows["text"][:] for split, rows in dataset.load().items()} == {
        "train": ["a1", "a2", "b1", "b2"],
        "validation": ["c1", "c2"],
        "test": ["d1", "d2"],
    }
    write("zipped/train.csv.gz", gzip.compress(b"text,label\na,x\nb,y\n"))
    write("zipped/readme.md.gz", b"")
    assert list(BertDataset(config(path.parents[1] / "zipped"), seed=0).load()) == ["train"]
    chosen = BertDataset(config(path.parent, splits={"train": "train-*.csv", "validation": "test.csv"}), seed=0)
    assert {split: len(rows) for split, rows in chosen.load().items()} == {"train": 4, "validation": 2}


def test_folders_of_splits_hold_folders_of_labels(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    for split in ("train", "test"):
        for label in ("neg", "pos"):
            write(f"{split}/{label}/0.txt", f"{split} {label}")
    dataset = BertDataset(config(tmp_path), seed=0)
    assert rows_of(dataset, "train") == [("train neg", "neg"), ("train pos", "pos")]
    assert rows_of(dataset, "test") == [("test neg", "neg"), ("test pos", "pos")]


def test_pairs_and_columns_of_other_names(write: Callable[..., Path], config: Callable[..., Any]) -> None:
    path = write("rows.tsv", "gold\tpremise\thypothesis\nyes\tIt rains.\tIt is wet.\nno\tIt rains.\tIt is dry.\n")
    dataset = BertDataset(config(path, columns={"text": "premise", "text_pair": "hypothesis", "label": "gold"}), seed=0)
    assert dataset.load()["train"].to_dict() == {
        "text": ["It rains.", "It rains."],
        "text_pair": ["It is wet.", "It is dry."],
        "label": [1, 0],
        "source_row": ["rows.tsv:2", "rows.tsv:3"],
    }
    assert dataset.load().report.repeated == {}


def test_labels_are_renamed_and_ordered_as_the_config_says(
    write: Callable[..., Path], config: Callable[..., Any]
) -> None:
    path = write("rows.csv", "text,label\na,0\nb,1\nc,2\n")
    dataset = BertDataset(config(path, labels={0: "good", 1: "bad", 2: "bad"}), seed=0)
    assert dataset.label_names == ("good", "bad")
    assert dataset.load()["train"]["label"][:] == [0, 1, 1]
    assert BertDataset(config(path, labels=[2, 0, 1]), seed=0).load()["train"]["label"][:] == [1, 2, 0]
    trained = BertDataset(config(path), seed=0, label_names=("2", "1", "0", "3"))
    assert trained.load()["train"]["label"][:] == [2, 1, 0]


def test_a_fallback_encoding_is_used_for_single_files_and_said(
    write: Callable[..., Path], config: Callable[..., Any], tmp_path: Path
) -> None:
    write("a/1.txt", "plain")
    write("b/1.txt", "caf\xe9 £".encode("latin-1"))
    dataset = BertDataset(config(tmp_path, fallback_encoding="latin-1"), seed=0)
    assert rows_of(dataset) == [("plain", "a"), ("café £", "b")]
    assert dataset.load().report.notes == ["Read as latin-1, since it is not utf-8: b/1.txt."]
    with pytest.raises(DataError, match=r"b/1\.txt:1: byte 0xe9 is not utf-8"):
        BertDataset(config(tmp_path), seed=0).load()
