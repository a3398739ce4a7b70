"""Documents whose tokens are known, and datasets of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.schema import StreamDatasetConfig

WORDS = 2000


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A word tokenizer in a directory: <bos> is 0, <eos> is 1, <unk> is 2, `w0` is 3, `w1` is 4, …."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<bos>", "<eos>", "<unk>", *(f"w{number}" for number in range(WORDS))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()  # `<eos>` in a text is three signs
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<unk>"
    )
    made.save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


@pytest.fixture
def dataset(tokenizer: Path) -> Callable[..., StreamDataset]:
    """A dataset of one file or of named sources; nothing held out, no BOS, where nothing else is said."""

    def make(sources: Path | str | dict[str, Any], *, seed: int = 7, **settings: Any) -> StreamDataset:
        named = sources if isinstance(sources, dict) else {"text": {"path": str(sources)}}
        node = {"_target_": "supertrainer.data.streams.dataset.StreamDataset", "sources": named}
        node |= {"tokenizer": str(tokenizer), "add_bos": False, "validation": {"share": 0.0}, "workers": 0}
        return StreamDataset(StreamDatasetConfig.model_validate_json(json.dumps(node | settings)), seed=seed)

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes documents as JSON lines: texts, or whatever stands for one."""

    def make(name: str, texts: list[Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    return make
