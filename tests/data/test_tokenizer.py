"""Tokenizers that are trained here: any text comes back, the same texts give the same one, and it is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    SMALLEST_VOCABULARY,
    cached_tokenizer,
    train_tokenizer,
    write_tokenizer,
)

LINES = [
    "To be, or not to be, that is the question:\n",
    "Whether 'tis nobler in the mind to suffer\n",
    "The slings and arrows of outrageous fortune,\r\n\tOr to take arms against a sea of troubles 1603.",
]
TEXTS = [
    "",
    " ",
    "  two spaces, then\t\ttabs \r\n\n\n and lines  ",
    "ÅÄÖ naïve Ελληνικά Русский עברית العربية हिन्दी 日本語 한국어",
    "👩‍👩‍👧‍👦🏴󠁧󠁢󠁥󠁮󠁧󠁿 e\u0301 \u00e9 \ufb01 \u2028\u2029\u0085\x00\x1f\x7f\ufeff\ufffd\U0010ffff",
    "".join(chr(point) for point in range(1, 0x300)),
    "1234567 3.14159 don't DON'T x==y!!!",
]
VOCABULARY = 300


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "supertrainer" / "tokenizers"


@pytest.fixture
def documents() -> list[str]:
    return LINES * 3


def test_every_text_comes_back(documents: list[str], tmp_path: Path) -> None:
    write_tokenizer(train_tokenizer(documents, vocab_size=VOCABULARY), tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*LINES, *TEXTS, "".join(TEXTS)]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text
        assert max(ids, default=0) < VOCABULARY


def test_a_text_begins_with_its_own_token_and_words_of_the_corpus_are_short(documents: list[str]) -> None:
    tokenizer = train_tokenizer(documents, vocab_size=VOCABULARY)
    assert len(tokenizer) == VOCABULARY
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 1, 2)
    assert tokenizer.convert_ids_to_tokens([0, 1, 2]) == [BOS, EOS, PAD]
    assert tokenizer.tokenize(" the") == ["Ġthe"]
    assert tokenizer.encode(" the") == [0, tokenizer.convert_tokens_to_ids("Ġthe")]
    assert len(tokenizer.encode("żółw", add_special_tokens=False)) == len("żółw".encode())  # bytes: no unknown token


def test_files_name_a_class_that_older_readers_know(documents: list[str], tmp_path: Path) -> None:
    write_tokenizer(train_tokenizer(documents, vocab_size=VOCABULARY, max_length=128), tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["model_max_length"]) == ("PreTrainedTokenizerFast", 128)


def test_the_same_texts_give_the_same_tokenizer_on_one_thread_and_on_many(documents: list[str]) -> None:
    script = (
        "from supertrainer.data.tokenizer import train_tokenizer\n"
        f"print(train_tokenizer({documents!r}, vocab_size={VOCABULARY}).backend_tokenizer.to_str())"
    )
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    here = train_tokenizer(iter(documents[::-1]), vocab_size=VOCABULARY).backend_tokenizer.to_str()
    assert done.stdout.strip() == here


@pytest.mark.parametrize(
    ("texts", "vocab_size", "error", "words"),
    [
        (LINES, SMALLEST_VOCABULARY - 1, ConfigError, r"258 tokens is too small(?s:.*)vocab_size=259 or more"),
        (["a b a b"], 400, DataError, r"give 261 tokens, not 400(?s:.*)vocab_size=261, or more documents"),
        ([], 400, DataError, r"give 259 tokens"),
        (["cut \ud83d"], VOCABULARY, DataError, "half of a surrogate pair"),
    ],
)
def test_a_vocabulary_that_cannot_be_made_is_told(
    texts: list[str], vocab_size: int, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        train_tokenizer(texts, vocab_size=vocab_size)


def test_it_is_made_once_for_a_key_and_size(cache: Path, documents: list[str]) -> None:
    asked = []

    def give() -> Iterator[str]:
        asked.append(len(asked))
        return iter(documents)

    first = cached_tokenizer(give, vocab_size=VOCABULARY, key="plays")
    assert cached_tokenizer(give, vocab_size=VOCABULARY, key="plays") == first
    assert asked == [0]
    others = [cached_tokenizer(give, vocab_size=size, key=key) for size, key in ((VOCABULARY, "poems"), (299, "plays"))]
    assert sorted(path.name for path in cache.iterdir()) == sorted(path.name for path in [first, *others])
    assert len(AutoTokenizer.from_pretrained(others[1])) == 299


def test_a_training_that_fails_leaves_nothing(cache: Path, documents: list[str]) -> None:
    with pytest.raises(DataError):
        cached_tokenizer(lambda: ["too", "few"], vocab_size=VOCABULARY, key="plays")
    assert list(cache.iterdir()) == []
