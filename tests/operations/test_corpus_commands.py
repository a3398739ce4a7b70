"""scripts/train_tokenizer.py and scripts/count_tokens.py: a tokenizer of a corpus, and what it makes of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from supertrainer.operations import count_tokens_command, train_tokenizer_command

SCRIPTS = Path(__file__).parents[2] / "scripts"
PLAY = "To be, or not to be, that is the question.\n" * 20
ROWS = [{"text": "two words"}, {"text": None}, {"text": "  "}, {"text": "<|end_of_text|>"}, {"body": "none"}]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """plays/*.txt, two documents, and rows.jsonl: two documents, three odd rows and a line that is no JSON."""
    (tmp_path / "plays").mkdir()
    for name in ("one", "two"):
        (tmp_path / "plays" / f"{name}.txt").write_text(PLAY)
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "rows.jsonl").write_text("\n".join([*lines, "{"]) + "\n")
    return tmp_path


@pytest.fixture
def tokenizer(corpus: Path) -> Path:
    out = corpus / "tokenizer"
    assert train_tokenizer_command.main([str(out), "--source", str(corpus / "plays"), "--vocab-size", "270"]) == 0
    return out


def test_a_tokenizer_is_written_and_not_over_another(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = corpus / "of plays"
    words = [str(out), "--source", str(corpus / "plays"), "--vocab-size", "270"]
    assert train_tokenizer_command.main(words) == 0
    assert f"{out}: 270 tokens from 2 documents of {2 * len(PLAY):,} bytes" in capsys.readouterr().out
    assert len(AutoTokenizer.from_pretrained(out)) == 270
    assert train_tokenizer_command.main(words) == 2
    assert "is there already" in capsys.readouterr().err


def test_every_source_is_counted_with_what_is_odd(
    corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["--source", str(corpus / "plays"), "--source", f"mine={corpus / 'rows.jsonl'}"]
    capsys.readouterr()
    assert count_tokens_command.main([*sources, "--tokenizer", str(tokenizer), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    reader = AutoTokenizer.from_pretrained(tokenizer)
    play = len(reader.encode(PLAY)) + 1  # the end
    assert found["sources"]["plays"]["tokens"] == 2 * play
    assert found["sources"]["plays"]["tokens_per_byte"] == pytest.approx(play / len(PLAY))
    assert found["sources"]["plays"]["words"] == 2 * 20 * 10
    written_out = len(reader.encode("<|end_of_text|>", split_special_tokens=True))  # text, as it is no end
    assert written_out > 3
    mine = found["sources"]["mine"]
    assert (mine["documents"], mine["bytes"]) == (2, len("two words<|end_of_text|>"))
    assert mine["tokens"] == len(reader.encode("two words")) + 1 + written_out + 1
    assert mine["odd"] == {"null": 2, "empty": 1, "broken": 1}
    assert found["total"]["tokens"] == 2 * play + mine["tokens"]


def test_a_text_file_is_divided_where_it_is_said(
    corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (corpus / "scenes.txt").write_text("one\n\ntwo\n\n\n\nthree")
    words = ["--source", str(corpus / "scenes.txt"), "--separator", r"\n\n", "--tokenizer", str(tokenizer), "--json"]
    capsys.readouterr()
    assert count_tokens_command.main(words) == 0
    assert json.loads(capsys.readouterr().out)["total"]["documents"] == 3


def test_a_table_for_people_as_a_script(corpus: Path, tokenizer: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "count_tokens.py"), "--source", str(corpus / "rows.jsonl")]
    done = subprocess.run([*command, "--tokenizer", str(tokenizer)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()
    assert head.split() == [
        "source",
        "documents",
        "bytes",
        "tokens",
        "tokens/byte",
        "bytes/token",
        "tokens/word",
        "odd",
    ]
    assert row.split()[:3] == ["rows", "2", "24"]
    assert row.endswith("2 null, 1 empty, 1 broken")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--source", "gone.txt", "--tokenizer", "."], r"--source gone: gone.txt is not there"),
        (["--source", "a=x.txt", "--source", "a=y.txt", "--tokenizer", "."], "two sources are named a"),
        (["--source", "{plays}", "--tokenizer", "/gone"], "--tokenizer: /gone is not there"),
        (["--source", "{plays}", "--tokeniser", "x"], "the following arguments are required: --tokenizer"),
        (["--source", "{plays}", "--tokenizer", "{tokenizer}", "--jsn"], "Fix: did you mean --json?"),
        (["--source", "{plays}", "--format", "csv", "--tokenizer", "{tokenizer}"], "--source plays format: "),
    ],
)
def test_a_wrong_command_ends_with_two(
    corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    places = {"plays": corpus / "plays", "tokenizer": tokenizer}
    assert count_tokens_command.main([word.format(**places) for word in words]) == 2
    assert told in capsys.readouterr().err
