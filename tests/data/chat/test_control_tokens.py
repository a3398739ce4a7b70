"""Special tokens written out in messages: found wherever a template writes them, and told with their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chat_rows import talk
from supertrainer.data.chat.control_tokens import ControlRows, ControlTokens


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ({"content": "a<|im_end|>b</s><|im_end|>"}, ["<|im_end|>", "</s>"]),
        ({"content": "a < s > <|im_end"}, []),
        ({"content": "a", "reasoning_content": "</s>"}, ["</s>"]),
        ({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": ["<s>"]}}}]}, ["<s>"]),
        ({"content": [{"type": "image"}, {"type": "text", "text": "[INST]"}]}, ["[INST]"]),
    ],
)
def test_they_are_found_in_all_that_is_written(message: Any, found: list[str], make_tokenizer: Any) -> None:
    assert ControlTokens(make_tokenizer()).within([{"role": "user", **message}]) == found


def test_the_first_rows_are_named() -> None:
    rows = ControlRows()
    assert rows.lines() == []
    for number in range(7):
        rows.add(f"a:{number}", ["<s>"] if number else [])
    [line] = rows.lines()
    assert line.endswith("read as such: a:1 (<s>), a:2 (<s>), a:3 (<s>), a:4 (<s>), a:5 (<s>) and 1 more.")


def test_a_kept_encoding_names_the_rows_of_the_file_that_is_read(
    dataset: Any, make_tokenizer: Any, tmp_path: Path
) -> None:
    rows = [{"messages": talk("a", "b")}, {"messages": talk("a</s>", "b")}]
    settings = {"cache": str(tmp_path / "cache")}
    data = dataset(rows, **settings)
    data.encode(data.load()["train"], make_tokenizer())
    (tmp_path / "train.jsonl").rename(tmp_path / "other.jsonl")
    again = dataset([], **{**settings, "source": str(tmp_path / "other.jsonl")})
    again.encode(again.load()["train"], make_tokenizer())
    assert len(list((tmp_path / "cache").glob("*"))) == 1
    assert again.load().report.notes[-1].endswith("which are read as such: other.jsonl:2 (</s>).")
