"""Texts to token ids, by literals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.data.bert import BertDataset
from supertrainer.data.tokenization import encode_texts, resolve_max_length


def test_texts_get_special_tokens_and_long_ones_are_cut(tokenizer: Any) -> None:
    encoded = encode_texts(["w0 w1", "w0 w1 w2", "w0 w1 w2 w3", ""], tokenizer, max_length=5)
    assert encoded.to_dict() == {
        "input_ids": [[2, 4, 5, 3], [2, 4, 5, 6, 3], [2, 4, 5, 6, 3], [2, 3]],
        "token_type_ids": [[0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0]],
        "length": [4, 5, 5, 2],
        "truncated": [False, False, True, False],
    }


def test_of_a_pair_the_longer_text_is_cut(tokenizer: Any) -> None:
    encoded = encode_texts(["w0", "w0 w1 w2 w3"], tokenizer, pairs=["w9 w8 w7 w6", "w9"], max_length=7)
    assert encoded["input_ids"][:] == [[2, 4, 3, 13, 12, 11, 3], [2, 4, 5, 6, 3, 13, 3]]
    assert encoded["token_type_ids"][:] == [[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1, 1]]
    assert encoded["truncated"][:] == [True, True]


def test_rows_of_several_batches_keep_their_order(tokenizer: Any) -> None:
    texts = [" ".join(["w1"] * (number % 7)) for number in range(2_345)]
    encoded = encode_texts(texts, tokenizer, max_length=64)
    assert encoded["length"][:] == [number % 7 + 2 for number in range(2_345)]
    assert all(len(ids) == length for ids, length in zip(encoded["input_ids"], encoded["length"], strict=True))


def test_the_tokenizer_is_not_left_with_a_truncation(tokenizer: Any, tmp_path: Path) -> None:
    encode_texts(["w0 w1 w2"], tokenizer, max_length=4)
    tokenizer.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "tokenizer.json").read_text())["truncation"] is None


def test_a_tokenizer_written_in_python_counts_what_it_cuts(tmp_path: Path) -> None:
    from transformers import BertTokenizerLegacy

    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]))
    legacy = BertTokenizerLegacy(tmp_path / "vocab.txt", model_max_length=64)
    encoded = encode_texts(["one two", "one two one"], legacy, max_length=4)
    assert encoded["input_ids"][:] == [[2, 5, 6, 3], [2, 5, 6, 3]]
    assert encoded["truncated"][:] == [False, True]


def test_the_longest_row_is_the_configs_within_the_tokenizers(tokenizer: Any) -> None:
    assert resolve_max_length(None, tokenizer) == 64
    assert resolve_max_length(32, tokenizer) == 32
    with pytest.raises(ConfigError) as raised:
        resolve_max_length(128, tokenizer)
    assert str(raised.value.problems[0]) == (
        "dataset.max_length=128 is more than the 64 tokens that the tokenizer of this model allows.\n"
        "  Why: the model has no positions for the tokens beyond.\n"
        "  Fix: dataset.max_length=64 or less."
    )
    tokenizer.model_max_length = int(1e30)
    assert resolve_max_length(128, tokenizer) == 128
    with pytest.raises(ConfigError, match=r"max_length is null, and the tokenizer has no limit"):
        resolve_max_length(None, tokenizer)


def test_a_dataset_encodes_once_with_its_labels(
    write: Callable[..., Path], config: Callable[..., Any], tokenizer: Any
) -> None:
    path = write("rows.csv", "text,label\nw0 w1,b\nw2,a\n")
    dataset = BertDataset(config(path, max_length=8), seed=0)
    rows = dataset.load()["train"]
    encoded = dataset.encode(rows, tokenizer)
    assert encoded["labels"][:] == [1, 0]
    assert dataset.encode(rows, tokenizer) is encoded
    assert BertDataset(config(path, max_length=8), seed=0).encode(rows, tokenizer).to_dict() == encoded.to_dict()
