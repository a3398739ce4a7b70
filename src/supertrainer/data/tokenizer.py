"""Byte-level BPE tokenizers, trained on a corpus: the same texts give the same tokenizer, and every text comes back."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.core.user_cache import made_once, user_cache

log = logging.getLogger(__name__)

BOS, EOS, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"  # names that no prose or markup has
SPECIAL_TOKENS = (BOS, EOS, PAD)  # token ids 0, 1 and 2
BYTES = 256
SMALLEST_VOCABULARY = BYTES + len(SPECIAL_TOKENS)
VERSION = 1  # counts up where the same texts become another tokenizer
# What a token never goes beyond: a word with the space or sign before it, three digits, a run of signs or of spaces.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_NAME_DIGITS = 16


def train_tokenizer(
    documents: Iterable[str], *, vocab_size: int, max_length: int | None = None
) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of the documents, with tokens for the beginning and end of a text and for padding.

    Every byte is a token, so any text can be written and comes back unchanged. What it encodes begins with the token of
    the beginning (`add_special_tokens=False` leaves it out).

    Args:
        documents: texts; read once.
        vocab_size: tokens in all, special ones and bytes included.
        max_length: positions of the model that will use it, noted in the tokenizer; None: not noted.

    Raises:
        ConfigError: the vocabulary has no room for every byte.
        DataError: the documents are too few for it, or hold halves of surrogate pairs.

    Source: byte-level BPE of Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).
    """
    if vocab_size < SMALLEST_VOCABULARY:
        raise ConfigError(
            f"a vocabulary of {vocab_size} tokens is too small.",
            why=f"every byte is a token, and so are {', '.join(SPECIAL_TOKENS)}.",
            fix=f"vocab_size={SMALLEST_VOCABULARY} or more.",
        )
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    try:
        tokenizer.train_from_iterator(documents, trainer)
    except UnicodeEncodeError as error:
        raise DataError(
            "a document holds half of a surrogate pair, which no text in UTF-8 can.",
            why=str(error),
            fix="repair the text: it was cut between two UTF-16 units, or decoded with surrogateescape.",
        ) from error
    if (reached := tokenizer.get_vocab_size()) < vocab_size:
        raise DataError(
            f"the documents give {reached:,} tokens, not {vocab_size:,}.",
            why="every word of theirs is one token then: there is nothing left to join.",
            fix=f"vocab_size={reached}, or more documents.",
        )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, SPECIAL_TOKENS.index(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
        **({} if max_length is None else {"model_max_length": max_length}),
    )


def write_tokenizer(tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Writes a tokenizer in files that transformers reads from version 4 on.

    Raises:
        ConfigError: the directory can't be written.
    """
    try:
        tokenizer.save_pretrained(directory)
        config = directory / "tokenizer_config.json"
        facts = json.loads(config.read_bytes())
        # The name that transformers 5 writes for the same class is unknown to version 4.
        facts["tokenizer_class"] = "PreTrainedTokenizerFast"
        config.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{directory} can't be written: {error}.", fix="name another directory.") from error


def cached_tokenizer(documents_factory: Callable[[], Iterable[str]], *, vocab_size: int, key: str) -> Path:
    """The directory of a corpus's tokenizer in the user's cache; trained where it isn't there yet.

    Any number of processes may ask at once: none sees a part of it.

    Args:
        documents_factory: gives the texts; called only where there is something to train.
        vocab_size: tokens in all.
        key: what stands for the texts: another key is another tokenizer.
    """
    facts = json.dumps({"version": VERSION, "vocab_size": vocab_size, "key": key}, sort_keys=True)
    directory = user_cache() / "tokenizers" / hashlib.sha256(facts.encode()).hexdigest()[:_NAME_DIGITS]

    def fill(aside: Path) -> None:
        log.info("a tokenizer of %s tokens is trained once, and kept in %s", f"{vocab_size:,}", directory)
        write_tokenizer(train_tokenizer(documents_factory(), vocab_size=vocab_size), aside)

    return made_once(directory, fill=fill)
