"""Tokenizers with a token for every byte, and datasets of rows given as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from chat_rows import CHATML
from supertrainer.data.llm import LlmDataset
from supertrainer.data.schema import LlmDatasetConfig

SPECIAL = ("<pad>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]")


@pytest.fixture
def make_tokenizer() -> Callable[..., Any]:
    """A tokenizer whose tokens are bytes and the special tokens, with these merges and this template."""

    def make(
        template: str | None = CHATML,
        *,
        merges: Sequence[tuple[str, str]] = (),
        adds_begin: bool = False,
        trims: bool = False,
        eos: str = "<|im_end|>",
        pad: str = "<pad>",
        bos: str | None = "<s>",
        limit: int = 4096,
    ) -> Any:
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
        from transformers import PreTrainedTokenizerFast

        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        words = [*SPECIAL, *letters, *("".join(pair) for pair in merges)]
        vocabulary = {word: number for number, word in enumerate(words)}
        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
        if adds_begin:
            backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        elif trims:  # offsets leave out the white space that a token begins with
            backend.post_processor = processors.ByteLevel(trim_offsets=True)
        names = {"eos_token": eos, "pad_token": pad, "bos_token": bos}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=limit, **names)
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture
def dataset(tmp_path: Path) -> Callable[..., LlmDataset]:
    """A dataset of these rows, written as JSON lines, with these settings."""

    def make(rows: Sequence[Any], **settings: Any) -> LlmDataset:
        path = tmp_path / "train.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        node = {"_target_": "supertrainer.data.llm.LlmDataset", "source": str(path), **settings}
        return LlmDataset(LlmDatasetConfig.model_validate_json(json.dumps(node)), seed=0)

    return make


@pytest.fixture
def learnt() -> Callable[..., list[list[str]]]:
    """Of every train row the runs of text that are learnt."""

    def find(data: LlmDataset, tokenizer: Any) -> list[list[str]]:
        from supertrainer.data.preview import text_pieces

        rows = data.encode(data.load()["train"], tokenizer)
        pieces = [text_pieces(row["input_ids"], row["labels"], tokenizer) for row in rows]
        return [[piece.text for piece in row if piece.learnt] for row in pieces]

    return find
