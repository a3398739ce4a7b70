"""A file in, a file out: every format, every cell kept, and the faults that are told first."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.inference.bert import BertInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.schema import BertInferencerConfig
from supertrainer.models.saving import load_trained
from tiny_models import save_tiny, tiny_texts

LABELS = ("bad", "fair", "good")


@pytest.fixture
def engine(tmp_path: Path) -> HfEngine:
    trained = load_trained(save_tiny(tmp_path / "model", labels=LABELS, initializer_range=0.3))
    return HfEngine(HfEngineConfig(_target_="x", batch_size=4), trained=trained)


def inferencer(engine: HfEngine, **keys: Any) -> BertInferencer:
    return BertInferencer(BertInferencerConfig(_target_="x", **keys), engine=engine)


def write_csv(path: Path, rows: list[dict[str, str]], delimiter: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def table(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".csv" | ".tsv":
            with path.open(newline="") as file:
                return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
        case ".jsonl":
            return [json.loads(line) for line in path.read_text().splitlines()]
    return pq.read_table(path).to_pylist()


def rows_of(count: int) -> list[dict[str, str]]:
    return [{"id": f"0{n}", "text": text, "note": 'a "b", c\nd'} for n, text in enumerate(tiny_texts(count))]


@pytest.mark.parametrize("chunk_rows", [3, 100])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_rows_keep_their_order_and_their_columns(
    tmp_path: Path, engine: HfEngine, ending: str, chunk_rows: int
) -> None:
    rows = rows_of(10)
    path = tmp_path / f"rows{ending}"
    if ending in (".csv", ".tsv"):
        write_csv(path, rows, delimiter="\t" if ending == ".tsv" else ",")
    elif ending == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    result = inferencer(engine, input=str(path), chunk_rows=chunk_rows).run(directory=tmp_path)
    assert (result.output, result.rows, result.blank) == (tmp_path / f"predictions{ending}", 10, 0)
    written = table(result.output)
    assert [{name: row[name] for name in ("id", "text", "note")} for row in written] == rows
    expected = inferencer(engine).predict([row["text"] for row in rows])
    assert len({round(prediction.score, 4) for prediction in expected}) > 5, "rows that don't differ show no order"
    for row, prediction in zip(written, expected, strict=True):
        assert row["predicted"] == prediction.label
        assert float(row["score"]) == pytest.approx(prediction.score, abs=2e-6)
        assert [float(row[f"probability_{name}"]) for name in LABELS] == pytest.approx(
            list(prediction.probabilities.values()), abs=2e-6
        )


def test_one_by_one_gives_the_same(engine: HfEngine) -> None:
    texts = tiny_texts(9)
    together = inferencer(engine).predict(texts)
    alone = [inferencer(engine).predict([text])[0] for text in texts]
    assert [p.label for p in together] == [p.label for p in alone]
    assert [p.score for p in together] == pytest.approx([p.score for p in alone], abs=1e-6)
    assert sum(together[0].probabilities.values()) == pytest.approx(1, abs=1e-12)


def test_another_ending_is_another_format(tmp_path: Path, engine: HfEngine) -> None:
    path = write_csv(tmp_path / "rows.csv", rows_of(3))
    output = tmp_path / "out" / "scored.parquet"
    result = inferencer(engine, input=str(path), output=str(output), probabilities=False, prefix="m_").run(
        directory=tmp_path
    )
    assert result.output == output
    assert pq.read_schema(output).names == ["id", "text", "note", "m_predicted", "m_score"]


def test_types_of_a_parquet_file_are_kept(tmp_path: Path, engine: HfEngine) -> None:
    schema = pa.schema([("text", pa.large_string()), ("n", pa.int8()), ("tags", pa.list_(pa.string()))])
    pq.write_table(
        pa.Table.from_pylist([{"text": "w1", "n": 3, "tags": ["a"]}], schema=schema), tmp_path / "rows.parquet"
    )
    result = inferencer(engine, input=str(tmp_path / "rows.parquet")).run(directory=tmp_path)
    assert pq.read_schema(result.output).types[:3] == schema.types


def test_pairs_are_read_together(tmp_path: Path, engine: HfEngine) -> None:
    path = write_csv(tmp_path / "rows.csv", [{"a": "w1 w2", "b": "w3"}, {"a": "w1 w2", "b": "w90"}])
    columns = {"text": "a", "text_pair": "b"}
    written = table(inferencer(engine, input=str(path), columns=columns).run(directory=tmp_path).output)
    assert written[0]["score"] != written[1]["score"]


def test_every_row_without_text_is_told_before_anything_is_predicted(tmp_path: Path, engine: HfEngine) -> None:
    rows = rows_of(9)
    for number in (2, 7, 8):
        rows[number]["text"] = "  "
    path = write_csv(tmp_path / "rows.csv", [{"text": row["text"]} for row in rows])
    with pytest.raises(DataError, match=r"(?s)rows.csv:4, rows.csv:9, rows.csv:10 have no text.*on_empty_text=blank"):
        inferencer(engine, input=str(path), chunk_rows=2).run(directory=tmp_path)
    assert not (tmp_path / "predictions.csv").exists()
    assert engine.tokens == 0


def test_rows_without_text_can_be_kept(tmp_path: Path, engine: HfEngine) -> None:
    path = write_csv(tmp_path / "rows.csv", [{"text": "w1"}, {"text": ""}, {"text": "w2"}])
    result = inferencer(engine, input=str(path), on_empty_text="blank").run(directory=tmp_path)
    assert (result.rows, result.blank) == (3, 1)
    assert [bool(row["predicted"]) for row in table(result.output)] == [True, False, True]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.csv", "id,txt\n1,a\n", "rows.csv has no column 'text'. It has: id, txt."),
        ("rows.csv", "text,predicted\na,b\n", "has a column 'predicted' already"),
        ("rows.csv", "text,id\na\n", "rows.csv:2 has 1 cells, and there are 2 columns"),
        ("rows.csv", "text,text\na,b\n", "the header names the column 'text' twice"),
        ("rows.csv", "text\n", "has no rows"),
        ("rows.jsonl", '{"text": "a"}\n{"text": \n', "rows.jsonl:2: no JSON"),
        ("rows.jsonl", '{"text": 3}\n', "rows.jsonl:1: the text is no string"),
        ("rows.jsonl", '{"text": "a"}\n{"text": "cut \\ud83d"}\n', "rows.jsonl:2 holds half of a surrogate pair"),
        ("rows.jsonl", '{"text": "a", "id": "\\uDE00"}\n', "rows.jsonl:1 holds half of a surrogate pair"),
        ("rows.parquet", "no parquet", "can't be read as Parquet"),
        ("rows.txt", "a", "can't be told from its ending"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    tmp_path: Path, engine: HfEngine, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        inferencer(engine, input=str(tmp_path / name)).run(directory=tmp_path)
    assert words in str(caught.value)


def test_a_character_of_two_code_units_is_read(tmp_path: Path, engine: HfEngine) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "w1 \\ud83d\\ude00"}\n')
    result = inferencer(engine, input=str(tmp_path / "rows.jsonl")).run(directory=tmp_path)
    assert json.loads(result.output.read_text())["text"] == "w1 \U0001f600"


def test_bytes_of_another_encoding_are_told(tmp_path: Path, engine: HfEngine) -> None:
    (tmp_path / "rows.csv").write_bytes("text\ncafé\n".encode("cp1252"))
    with pytest.raises(DataError, match=r"(?s)byte 0xe9 is not utf-8.*inferencer\.encoding=cp1252"):
        inferencer(engine, input=str(tmp_path / "rows.csv")).run(directory=tmp_path)
    result = inferencer(engine, input=str(tmp_path / "rows.csv"), encoding="cp1252").run(directory=tmp_path)
    assert table(result.output)[0]["text"] == "café"


def test_a_failure_leaves_what_was_there(tmp_path: Path, engine: HfEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "rows.csv", rows_of(6))
    (tmp_path / "predictions.csv").write_text("older")
    task = inferencer(engine, input=str(path), chunk_rows=3)
    predicted = iter([task.predict_rows(rows_of(3))])
    monkeypatch.setattr(task, "predict_rows", lambda rows: next(predicted))  # the second chunk fails
    with pytest.raises((RuntimeError, StopIteration)):
        task.run(directory=tmp_path)
    assert (tmp_path / "predictions.csv").read_text() == "older"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "predictions.csv", "rows.csv"]


def test_texts_are_cut_where_training_cut_them(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "model", labels=LABELS)
    trained = load_trained(source)
    trained.tokenizer.model_max_length = 6
    engine = HfEngine(HfEngineConfig(_target_="x"), trained=trained)
    inferencer(engine).predict(["w1 w2 w3 w4 w5 w6 w7"])
    assert engine.tokens == 6
    with pytest.raises(ConfigError, match="max_length=8 is more than the 6 tokens"):
        inferencer(engine, max_length=8).predict(["w1"])


def test_a_missing_file_is_told_by_the_config() -> None:
    with pytest.raises(ValidationError, match=r"\./nowhere\.csv"):
        BertInferencerConfig(_target_="x", input="./nowhere.csv")


def test_an_engine_wants_one_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ConfigError, match="an engine needs one model"):
        HfEngine(HfEngineConfig(_target_="x"))
    with caplog.at_level(logging.INFO):
        engine = HfEngine(HfEngineConfig(_target_="x"), source=save_tiny(tmp_path, labels=LABELS))
    assert engine.trained.label_names == LABELS
    with pytest.raises(ConfigError, match="sees no GPU"):
        HfEngine(HfEngineConfig(_target_="x", device="cuda"), source="a/b")
