"""What becomes of documents in each format, and of those that are empty, null, broken or huge."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from supertrainer.core.errors import DataError
from supertrainer.data.streams import blocks
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.operations.tokenize_command import main as tokenize_corpus

TEXTS = ["w0 w1", "w2 é 漢字 🙂", "w3\nw4", "w5 w6 w7", "  w8 "]


def texts_of(made: StreamDataset) -> Counter[str]:
    return Counter(made.texts())


def tokens_of(made: StreamDataset) -> Counter[tuple[int, ...]]:
    """The documents of the first epoch, as token ids with their EOS."""
    row = made.open(sequence_length=100, global_batch_size=1).next_step()
    return Counter(tuple(row.tokens[row.documents == number].tolist()) for number in range(len(TEXTS)))


def text_files(directory: Path) -> str:
    for number, text in enumerate(TEXTS):
        (directory / f"{number}.txt").write_text(text)
    return str(directory)


def separated(directory: Path) -> str:
    (directory / "all.txt").write_text("\n\n\n".join(TEXTS) + "\n\n\n\n")
    return str(directory / "all.txt")


def json_lines(directory: Path, name: str = "all.jsonl") -> Path:
    lines = [json.dumps({"text": text, "id": n}) for n, text in enumerate(TEXTS)]
    path = directory / name
    path.write_text("\ufeff" + lines[0] + "\n\n\r\n" + "\n".join(lines[1:]))
    return path


def gzipped(directory: Path) -> str:
    packed = directory / "all.jsonl.gz"
    packed.write_bytes(gzip.compress(json_lines(directory, "plain").read_bytes()))
    return str(packed)


def zstandard(directory: Path) -> str:
    packed = directory / "all.jsonl.zst"
    with pa.output_stream(str(packed), compression="zstd") as stream:
        stream.write(json_lines(directory, "plain").read_bytes())
    return str(packed)


def parquet(directory: Path) -> str:
    pq.write_table(pa.table({"text": TEXTS, "id": range(5)}), directory / "all.parquet", row_group_size=2)
    return str(directory / "all.parquet")


def parquet_in_words(directory: Path) -> str:
    table = pa.table({"text": pa.array(TEXTS).dictionary_encode()})
    pq.write_table(table, directory / "all.parquet")
    return str(directory / "*.parquet")


def arrow_stream(directory: Path) -> str:
    table = pa.table({"text": pa.array(TEXTS, pa.large_string())})
    with pa.OSFile(str(directory / "all.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return str(directory / "all.arrow")


def feather(directory: Path) -> str:
    table = pa.table({"text": pa.array(TEXTS, pa.string_view())})
    with pa.OSFile(str(directory / "all.feather"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return str(directory / "all.feather")


FORMATS = [text_files, separated, gzipped, zstandard, parquet, parquet_in_words, arrow_stream, feather]


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_gives_the_same_documents(
    form: Callable[[Path], str], dataset: Callable[..., StreamDataset], tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    source: dict[str, Any] = {"path": form(tmp_path / "files")}
    if form is separated:
        source["document_separator"] = "\n\n\n"
    made = dataset({"text": source}, cache=str(tmp_path / "cache"))
    assert texts_of(made) == Counter(TEXTS)
    assert made.facts()["text"]["documents"] == len(TEXTS)


def test_token_ids_made_before_give_the_documents_that_encoding_now_gives(
    dataset: Callable[..., StreamDataset], tmp_path: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = json_lines(tmp_path)
    assert tokenize_corpus([str(path), str(tmp_path / "ids.bin"), "--tokenizer", str(tokenizer)]) == 0
    assert "5 documents, 12 tokens" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.glob("ids*")) == ["ids.bin", "ids.json", "ids.offsets"]
    assert tokens_of(dataset(tmp_path / "ids.bin")) == tokens_of(dataset(path))


def test_spans_of_a_large_file_hold_every_line_once(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_EXACT_BYTES", 0)
    monkeypatch.setattr(blocks, "_BLOCKS_A_STREAM", 10_000)  # so that spans are the smallest
    texts = [f"w{number} " * (1 + number % 5) for number in range(50)]
    path = write("large.jsonl", texts)
    for span in range(7, 60):  # some end just before a line, at its first byte, and within it; some hold none
        monkeypatch.setattr(blocks, "_SMALLEST_SPAN", span)
        made = dataset(path)
        assert made.facts()["text"]["documents"] is None
        assert texts_of(made) == Counter(texts)


ODD: list[Any] = ["w0", None, "", " \n", "\ud800 w1", "w2 " * 500, "w3"]


def test_odd_documents_are_left_out_and_counted(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    path = write("odd.jsonl", ODD)
    with path.open("ab") as file:
        file.write(b'{"text": "w4 \xff"}\n{"text": \nnothing\n[1]\n{"text": 5}\n{"other": "w5"}\n')
    made = dataset(path, huge_characters=1000, on_huge="drop")
    assert texts_of(made) == Counter(["w0", "w3"])
    stream = made.open(sequence_length=3, global_batch_size=1)
    while (counts := stream.counts()["text"])["documents"] < 20:
        stream.next_step()
    passes = 10
    assert counts["null"] == pytest.approx(2 * passes, abs=4)
    assert counts["empty"] == pytest.approx(2 * passes, abs=4)
    assert counts["broken"] == pytest.approx(6 * passes, abs=12)
    assert counts["huge"] == pytest.approx(passes, abs=2)


def test_broken_bytes_can_be_marked(dataset: Callable[..., StreamDataset], write: Callable[..., Path]) -> None:
    path = write("odd.jsonl", ["\ud800 w1"])
    with path.open("ab") as file:
        file.write(b'{"text": "w4 \xff"}\nno json\n')
    assert texts_of(dataset(path, on_broken="replace")) == Counter(["\ufffd\ufffd\ufffd w1", "w4 \ufffd"])


def test_a_huge_document_is_encoded_in_pieces_and_stays_one(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path]
) -> None:
    text = " ".join(f"w{number % 1000}" for number in range(1500))
    [whole, pieces] = (
        dataset(write("a.jsonl", [text]), huge_characters=limit).open(sequence_length=1500, global_batch_size=1)
        for limit in (10_000, 1000)
    )
    row = pieces.next_step()
    assert row.tokens.tolist() == whole.next_step().tokens.tolist()
    assert (row.documents.max(), row.tokens[0, -1]) == (0, 1)
    pieces.next_step()
    assert (pieces.counts()["text"]["huge"], whole.counts()["text"]["huge"]) == (2, 0)


@pytest.mark.parametrize(
    ("row", "settings", "message"),
    [
        ('{"text": null}', {"on_null": "error"}, r"bad.jsonl:3 of dataset.sources.text: 'text' is null or absent"),
        ('{"text": " "}', {"on_empty": "error"}, r"bad.jsonl:3 of dataset.sources.text: it has no text"),
        ('{"text": ', {"on_broken": "error"}, r"bad.jsonl:3 .*: no JSON: Expecting value, column 10"),
        ('{"text": "w w w"}', {"on_huge": "error"}, r"bad.jsonl:3 .*: 1,202 characters are more than"),
    ],
)
def test_an_odd_document_is_an_error_with_its_place_where_the_config_says_so(
    row: str, settings: dict[str, Any], message: str, dataset: Callable[..., StreamDataset], tmp_path: Path
) -> None:
    row = row.replace("w w w", "w " * 601)
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "w0"}\n{"text": "w1"}\n' + row + "\n")
    stream = dataset(path, huge_characters=1000, **settings).open(sequence_length=50, global_batch_size=1)
    with pytest.raises(DataError, match=message):
        stream.next_step()


def test_broken_utf8_is_counted_in_every_format(dataset: Callable[..., StreamDataset], tmp_path: Path) -> None:
    contents = [b"w0", b"w1 \xff", b"w2"]
    (tmp_path / "all.txt").write_bytes(b"\n\n".join(contents))
    broken = pa.StringArray.from_buffers(3, *pa.array(contents, pa.binary()).buffers()[1:])
    pq.write_table(pa.table({"text": broken}), tmp_path / "all.parquet")
    for name in ("all.txt", "all.parquet"):
        made = dataset({"text": {"path": str(tmp_path / name), "document_separator": "\n\n"}})
        assert texts_of(made) == Counter(["w0", "w2"])
        with pytest.raises(DataError, match=r"all.(txt:3|parquet row 2) .*: no UTF-8: byte 0xff"):
            texts_of(dataset({"text": {"path": str(tmp_path / name), "document_separator": "\n\n"}}, on_broken="error"))


def test_nothing_but_odd_documents_is_told(dataset: Callable[..., StreamDataset], write: Callable[..., Path]) -> None:
    stream = dataset(write("odd.jsonl", [" ", None, ""])).open(sequence_length=3, global_batch_size=1)
    with pytest.raises(DataError, match=r"dataset.sources.text has no document that can be trained on"):
        stream.next_step()
    (write("none.jsonl", [])).write_text("\n\n")
    with pytest.raises(DataError, match=r"dataset.sources.text has no document"):
        dataset(write("none.jsonl", [])).open(sequence_length=3, global_batch_size=1)


def test_no_more_blocks_are_open_than_allowed_and_the_rows_are_the_same(
    dataset: Callable[..., StreamDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"w{number} " * (1 + number % 7) for number in range(200)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "all.parquet", row_group_size=10)
    most: list[int] = []
    get = blocks.OpenUnits.get

    def watched(self: blocks.OpenUnits, *args: Any) -> Any:
        unit = get(self, *args)
        most.append(len(self))
        return unit

    monkeypatch.setattr(blocks.OpenUnits, "get", watched)

    def steps(**settings: Any) -> list[list[list[int]]]:
        most.clear()
        with dataset(tmp_path / "all.parquet", **settings).open(sequence_length=9, global_batch_size=8) as stream:
            return [stream.next_step().tokens.tolist() for _ in range(20)]

    free = steps()
    assert max(most) > 2
    for workers in (0, 2):
        assert steps(max_open_blocks=2, workers=workers) == free
        assert max(most) == 2
