"""Datasets of rows with pictures, given as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from supertrainer.data.mllm import MllmDataset
from supertrainer.data.preview import text_pieces
from supertrainer.data.schema import MllmDatasetConfig
from tiny_vision import save_picture

SIZES = {"small": (20, 12), "square": (64, 64), "high": (12, 40), "wide": (100, 30)}


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with the pictures small.png, square.png, high.png and wide.png."""
    for name, (width, height) in SIZES.items():
        save_picture(tmp_path / f"{name}.png", width, height, colour=(200, len(name) * 20, 30))
    return tmp_path


@pytest.fixture
def dataset(pictures: Path) -> Callable[..., MllmDataset]:
    """A dataset of these rows, written as JSON lines beside the pictures, with these settings."""

    def make(rows: Sequence[Any], **settings: Any) -> MllmDataset:
        path = pictures / "train.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        node = {"_target_": "supertrainer.data.mllm.MllmDataset", "source": str(path), **settings}
        return MllmDataset(MllmDatasetConfig.model_validate_json(json.dumps(node)), seed=0)

    return make


@pytest.fixture
def learnt() -> Callable[..., list[list[str]]]:
    """Of every train row the runs of text that are learnt."""

    def find(data: MllmDataset, processor: Any) -> list[list[str]]:
        rows = data.encode(data.load()["train"], processor)
        pieces = [text_pieces(row["input_ids"], row["labels"], processor.tokenizer) for row in rows]
        return [[piece.text for piece in row if piece.learnt] for row in pieces]

    return find


def asked(question: Any, answer: str, *images: str) -> dict[str, Any]:
    """A row with its pictures before the question, where that is a text; else the question in parts."""
    parts = [*({"type": "image"} for _ in images), {"type": "text", "text": question}]
    content = parts if isinstance(question, str) else question
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]
    return {"images": list(images), "messages": messages}


@pytest.fixture
def mixed() -> list[dict[str, Any]]:
    """Rows with one picture, two with text between, none, one of many tokens."""
    between = [{"type": "image"}, {"type": "text", "text": "or"}, {"type": "image"}, {"type": "text", "text": "?"}]
    return [
        asked("What?", "A small one.", "small.png"),
        asked(between, "Both.", "high.png", "wide.png"),
        asked("Hi", "Hello"),
        asked("And this?", "Square.", "square.png"),
    ]
