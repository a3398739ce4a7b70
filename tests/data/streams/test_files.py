"""Which files a source has, and what tells that they changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.streams import files
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.memmap import MemmapTokens, MemmapWriter
from supertrainer.operations.tokenize_command import main as tokenize_corpus


def test_a_changed_file_changes_the_fingerprint_whether_hashed_whole_or_at_places(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.jsonl", ["w0 w1", "w2"])
    for whole in (1 << 20, 0):
        monkeypatch.setattr(files, "_WHOLE_BYTES", whole)
        before = dataset(path).fingerprint()
        assert list(before) == ["text/a.jsonl"]
        content = path.read_bytes()
        path.write_bytes(content.replace(b"w2", b"w3"))
        assert dataset(path).fingerprint() != before
        path.write_bytes(content)
        assert dataset(path).fingerprint() == before


def test_sources_are_files_folders_patterns_and_patterns_inside_packages(
    dataset: Callable[..., StreamDataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "corpus_of_plays"
    (package / "texts").mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("a_1.txt", "a_2.txt", "b.txt", ".hidden.txt"):
        (package / "texts" / name).write_text(name)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {
        path: sorted(dataset(path).texts())
        for path in (
            str(package / "texts/b.txt"),
            str(package),
            str(package / "texts/a_*.txt"),
            "package://corpus_of_plays/texts/a_*.txt",
        )
    }
    assert list(found.values()) == [
        ["b.txt"],
        ["a_1.txt", "a_2.txt", "b.txt"],
        ["a_1.txt", "a_2.txt"],
        ["a_1.txt", "a_2.txt"],
    ]
    with pytest.raises(
        ValidationError, match=r"texts/c_\*.txt matches no file. Fix: a pattern of files that are there"
    ):
        dataset("package://corpus_of_plays/texts/c_*.txt")


def test_what_is_no_source_is_told(dataset: Callable[..., StreamDataset], tmp_path: Path, write: Any) -> None:
    write("mixed/a.jsonl", ["w0"])
    (tmp_path / "mixed" / "b.txt").write_text("w1")
    with pytest.raises(DataError, match=r"holds files of several formats: jsonl, text"):
        dataset(tmp_path / "mixed").sources  # noqa: B018
    assert list(dataset({"text": {"path": str(tmp_path / "mixed"), "format": "jsonl"}}).texts()) == ["w0"]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_text("text\nw0\n")
    with pytest.raises(DataError, match=r"has no files of documents.\n  Why: it holds a.csv"):
        dataset(tmp_path / "tables").sources  # noqa: B018
    with pytest.raises(DataError, match=r"a.jsonl:1 has no 'content'.\n  Why: it has text."):
        dataset({"text": {"path": str(tmp_path / "mixed/a.jsonl"), "text_column": "content"}}).sources  # noqa: B018
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match=r"numbers.parquet: the column 'text' holds int64, no text"):
        dataset(tmp_path / "numbers.parquet").sources  # noqa: B018
    with pytest.raises(DataError, match=r"numbers.parquet has no column 'body'.\n  Why: it has text."):
        dataset({"text": {"path": str(tmp_path / "numbers.parquet"), "text_column": "body"}}).sources  # noqa: B018
    for name in ("torn.parquet", "torn.jsonl.gz", "torn.jsonl.zst", "torn.arrow"):
        (tmp_path / name).write_bytes(b"no such thing at all")
        with pytest.raises(DataError, match=r"torn\S+ can't be (read|unpacked)"):
            dataset(tmp_path / name, cache=str(tmp_path / "cache")).sources  # noqa: B018
    assert not list((tmp_path / "cache").iterdir())


def test_compressed_text_is_unpacked_once(dataset: Callable[..., StreamDataset], tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"w0 w1"))
    made = dataset(tmp_path / "a.txt.gz", cache=str(tmp_path / "cache"))
    assert list(made.texts()) == ["w0 w1"]
    [copy] = (tmp_path / "cache").iterdir()
    written = copy.stat().st_mtime_ns
    assert list(dataset(tmp_path / "a.txt.gz", cache=str(tmp_path / "cache")).texts()) == ["w0 w1"]
    assert copy.stat().st_mtime_ns == written


def rotten(content: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "cut off":
            return content[:-5]
        case "no archive":
            return b'{"text": "w0"}'
        case "garbage behind":
            return content + b"garbage"
    changed = bytearray(content)
    changed[int(how)] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        *((".gz", how) for how in ("empty", "cut off", "no archive", "garbage behind", "0", "2", "10", "12", "-6")),
        *((".zst", how) for how in ("empty", "cut off", "no archive", "garbage behind", "0", "4")),
    ],
)
def test_a_rotten_archive_is_named(
    dataset: Callable[..., StreamDataset], tmp_path: Path, ending: str, how: str
) -> None:
    import gzip

    import pyarrow as pa

    plain = "".join(f'{{"text": "w{number} w{number * 7 % 11}"}}\n' for number in range(200)).encode()
    packed = gzip.compress(plain) if ending == ".gz" else pa.Codec("zstd").compress(plain, asbytes=True)
    (tmp_path / "good.jsonl").write_bytes(plain)
    path = tmp_path / f"bad.jsonl{ending}"
    path.write_bytes(rotten(packed, how))
    made = dataset(f"{tmp_path}/*.jsonl*", cache=str(tmp_path / "cache"))
    with pytest.raises(DataError) as told:
        made.sources  # noqa: B018
    assert f"{path} can't be unpacked: " in str(told.value)
    assert "Fix: fetch the file again, or leave it out" in str(told.value)
    assert not list((tmp_path / "cache").glob("*"))


def test_changed_bytes_of_a_parquet_file_are_told_where_it_has_checksums(
    dataset: Callable[..., StreamDataset], tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"w{number}" for number in range(200)]})
    pq.write_table(table, path, row_group_size=100, compression="none", use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[content.index(b"w150")] ^= 1  # v150, as good a text as any
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet row group 1 can't be read as Parquet: .*checksum"):
        list(dataset(path).texts())


def test_a_file_in_two_sources_is_refused(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], tmp_path: Path
) -> None:
    rows = [json.dumps({"text": "w0", "title": "w1"})]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    write("b.jsonl", ["w2"])
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a.jsonl")
    everything = {"path": f"{tmp_path}/[ab].jsonl"}
    for again in ("a.jsonl", "link.jsonl"):
        with pytest.raises(DataError, match=r"in two sources: dataset\.sources\.all and dataset\.sources\.some\."):
            dataset({"all": everything, "some": {"path": str(tmp_path / again)}}).sources  # noqa: B018
    titles = {"path": str(tmp_path / "a.jsonl"), "text_column": "title"}  # other texts
    assert set(dataset({"all": everything, "titles": titles}).sources) == {"all", "titles"}


@pytest.mark.parametrize(("number", "said"), [(2004, "1 id in between"), (9000, "6,997 ids in between")])
def test_a_tokenizer_with_gaps_in_its_ids_is_refused(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], tokenizer: Path, number: int, said: str
) -> None:
    path = write("a.jsonl", ["w0 <call>"])
    assert len(dataset(path).tokenizer()) == 2003
    file = tokenizer / "tokenizer.json"
    told = json.loads(file.read_text())
    told["model"]["vocab"]["gap"] = number
    file.write_text(json.dumps(told))
    with pytest.raises(ConfigError) as refused:
        dataset(path).sources  # noqa: B018
    assert f"has 2,004 tokens, and ids up to {number:,} ('gap'): {said} belong to no token." in str(refused.value)
    assert "Fix: give the 1 tokens from id 2,004 on the free ids" in str(refused.value)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_token_ids_are_written_and_read_in_place(vocab_size: int, dtype: str, tmp_path: Path) -> None:
    documents = [[1, 2, 3], [], [vocab_size - 1], [5, 6]]
    with MemmapWriter(tmp_path / "a.bin", vocab_size=vocab_size, tokenizer="t") as writer:
        for document in documents:
            writer.append(document)
        writer.commit()
    assert np.fromfile(tmp_path / "a.bin", dtype=dtype).tolist() == [1, 2, 3, vocab_size - 1, 5, 6]
    assert np.fromfile(tmp_path / "a.offsets", dtype="<u8").tolist() == [0, 3, 3, 4, 6]
    tokens = MemmapTokens(tmp_path / "a.bin", name="a.bin")
    assert [tokens.document(number).tolist() for number in range(len(tokens))] == documents


def test_a_writer_that_fails_leaves_nothing_and_refuses_what_is_there(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match="document 1: token id 9 in a vocabulary of 5 tokens"),
        MemmapWriter(tmp_path / "a.bin", vocab_size=5, tokenizer="t") as writer,
    ):
        writer.append([9])
    assert not list(tmp_path.iterdir())
    (tmp_path / "a.bin").touch()
    with pytest.raises(ConfigError, match=r"a.bin is there already"):
        MemmapWriter(tmp_path / "a.bin", vocab_size=5, tokenizer="t")


def test_token_ids_of_another_tokenizer_and_torn_ones_are_refused(
    dataset: Callable[..., StreamDataset], write: Callable[..., Path], tmp_path: Path, tokenizer: Path
) -> None:
    path = tmp_path / "a.bin"
    assert tokenize_corpus([str(write("a.jsonl", ["w0"])), str(path), "--tokenizer", str(tokenizer)]) == 0
    facts = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps({**facts, "tokenizer": "0" * 64}))
    with pytest.raises(DataError, match="its token ids were made by another tokenizer"):
        dataset(path).sources  # noqa: B018
    path.with_suffix(".json").write_text(json.dumps({**facts, "tokens": 5}))
    with pytest.raises(DataError, match=r"a.bin has 2 bytes; a.json tells of 10"):
        dataset(path).sources  # noqa: B018


def test_the_command_tells_what_is_wrong(
    tmp_path: Path, tokenizer: Path, write: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "a.bin")
    assert tokenize_corpus([str(tmp_path / "none.jsonl"), out, "--tokenizer", str(tokenizer)]) == 2
    assert "none.jsonl is not there" in capsys.readouterr().err
    assert tokenize_corpus([str(write("e.jsonl", [" "])), out, "--tokenizer", str(tokenizer)]) == 2
    assert "there is no document to write" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.bin*"))
    assert tokenize_corpus([str(write("e.jsonl", ["w0", None])), out, "--tokenizer", str(tokenizer)]) == 0
    assert "odd documents: 1 null" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer": None}, "neither of tokenizer and tokenizer_training"),
        ({"tokenizer_training": {}}, "both of tokenizer and tokenizer_training"),
        ({"sources": {}}, "no source is named"),
        ({"sources": {"a": {"path": "README.md", "weight": 0}}}, "Input should be greater than 0"),
        ({"sources": {"a": {"path": "./nowhere.txt"}}}, "nowhere.txt is not there"),
        ({"validation": {"share": 1.0}}, "Input should be less than 1"),
        ({"wrkers": 1}, "Extra inputs are not permitted"),
    ],
)
def test_a_faulty_setting_is_refused(
    settings: dict[str, Any], message: str, dataset: Callable[..., StreamDataset]
) -> None:
    with pytest.raises(ValidationError, match=message):
        dataset(**{"sources": {"a": {"path": "some/set"}}, **settings})
