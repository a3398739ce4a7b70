"""Token ids of an earlier run: found again, and only where they are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chat_rows import CHATML, MARKED, talk
from supertrainer.core.errors import ConfigError
from supertrainer.data.chat import preparing
from supertrainer.data.chat.cache import TokenCache

ROWS = [{"messages": talk("Hi", "Hello")}, {"messages": talk("Hi", "Hello", "Bye", "So long")}]


@pytest.fixture
def cached(tmp_path: Path, dataset: Any) -> Any:
    """A dataset of these rows and settings that keeps token ids in `cache/`."""

    def make(rows: Any = ROWS, **settings: Any) -> Any:
        return dataset(rows, **{"cache": str(tmp_path / "cache"), **settings})

    return make


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*"))


def encoded(data: Any, tokenizer: Any) -> list[Any]:
    return data.encode(data.load()["train"], tokenizer).to_list()


def test_the_second_run_reads_what_the_first_wrote(
    cached: Any, make_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"max_length": 50, "on_too_long": "right"}
    first = cached(**settings)
    rows = encoded(first, make_tokenizer())
    assert rows == encoded(cached(cache=None, **settings), make_tokenizer())

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("encoded again")

    monkeypatch.setattr(preparing, "encode_conversations", fail)
    second = cached(**settings)
    assert encoded(second, make_tokenizer()) == rows
    assert second.load().report.notes == first.load().report.notes
    assert "cut on the right" in second.load().report.notes[-1]
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize(
    ("rows", "settings", "template"),
    [
        ([ROWS[0], {"messages": talk("Hi", "Hello", "Bye", "So long!")}], {}, CHATML),
        (ROWS[::-1], {}, CHATML),
        (ROWS[:1], {}, CHATML),
        ([{**ROWS[0], "tools": [{"name": "Hi"}]}, ROWS[1]], {}, CHATML),
        (ROWS, {}, MARKED),
        (ROWS, {"chat_template": "chatml"}, CHATML),
        (ROWS, {"template_kwargs": {"short": True}}, CHATML + "{{ short }}"),
        (ROWS, {"template_date": "2026-03-01"}, CHATML + "{{ strftime_now('%Y') }}"),
        (ROWS, {"max_length": 200}, CHATML),
        (ROWS, {"on_too_long": "drop"}, CHATML),
        (ROWS, {"train_on": "last"}, CHATML),
        (ROWS, {"on_malformed_rows": "drop"}, CHATML),
        (ROWS, {"on_nothing_to_learn": "drop"}, CHATML),
    ],
)
def test_what_changes_the_tokens_changes_the_key(
    rows: Any, settings: Any, template: str, cached: Any, make_tokenizer: Any, tmp_path: Path
) -> None:
    encoded(cached(), make_tokenizer())
    encoded(cached(rows, **settings), make_tokenizer(template))
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    "changes", [{"merges": [("H", "i")]}, {"eos": "</s>"}, {"adds_begin": True}, {"limit": 90}], ids=str
)
def test_another_tokenizer_changes_the_key(changes: Any, cached: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    encoded(cached(), make_tokenizer())
    encoded(cached(), make_tokenizer(**changes))
    assert len(files(tmp_path)) == 2


def test_nothing_else_changes_the_key(cached: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    encoded(cached(), make_tokenizer())
    elsewhere = tmp_path / "elsewhere.jsonl"
    elsewhere.write_text((tmp_path / "train.jsonl").read_text())
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    from transformers import AutoTokenizer

    again = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    again(["a b"], truncation=True, max_length=3, padding="max_length")  # what a tokenizer remembers of a call
    settings = {"source": str(elsewhere), "split_seed": 7, "min_trained_share": 0.1, "limits": {"train": 2}}
    encoded(cached(**settings), again)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: b"", lambda content: content[:40]])
def test_a_damaged_entry_is_made_again(damage: Any, cached: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    rows = encoded(cached(), make_tokenizer())
    [path] = files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert encoded(cached(), make_tokenizer()) == rows
    assert path.read_bytes() == whole


def test_an_error_is_not_kept(cached: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="longer than"):
        encoded(cached(max_length=8), make_tokenizer())
    assert files(tmp_path) == []


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert TokenCache.of(None) is None
    assert TokenCache.of("auto") == TokenCache(tmp_path / ".cache/supertrainer/tokens")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert TokenCache.of("auto") == TokenCache(tmp_path / "x/supertrainer/tokens")


def test_a_directory_that_can_not_be_written_is_told(cached: Any, make_tokenizer: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"dataset\.cache: .*file.* can't be written"):
        encoded(cached(cache=str(tmp_path / "file" / "cache")), make_tokenizer())


def test_two_processes_at_once_leave_one_whole_entry(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys, pyarrow as pa\n"
        "from supertrainer.data.chat.cache import TokenCache\n"
        "cache = TokenCache(pathlib.Path(sys.argv[1]))\n"
        "table = pa.table({'a': list(range(50_000))})\n"
        "for _ in range(30):\n"
        "    cache.write('k', table, {'lines': []})\n"
        "    found = cache.read('k')\n"
        "    assert found is not None and found[0].equals(table)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) for _ in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["k.arrow"]
