"""Configs, files and a tokenizer for the tests of rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.data.schema import BertDatasetConfig

ROWS = [("fine", "pos"), ("dull", "neg"), ("great fun", "pos"), ("too long", "neg")]


@pytest.fixture
def config() -> Callable[..., BertDatasetConfig]:
    """A config of these settings, validated as one from the command line."""

    def make(source: Path | str, **settings: Any) -> BertDatasetConfig:
        node = {"_target_": "supertrainer.data.bert.BertDataset", "source": str(source), **settings}
        return BertDatasetConfig.model_validate_json(json.dumps(node))

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], Path]:
    """Writes a file below the test's directory and gives its path."""

    def make(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


@pytest.fixture
def tokenizer() -> Any:
    """A word tokenizer that frames a text as [CLS] … [SEP]: `w0` is id 4, `w1` is id 5, up to `w95`."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: index for index, word in enumerate([*special, *(f"w{number}" for number in range(96))])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
