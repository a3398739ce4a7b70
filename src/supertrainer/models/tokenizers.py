"""Tokenizers: found, read, and saved without what their last call left in them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path
from supertrainer.models.sources import Source, find_source

log = logging.getLogger(__name__)

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tekken.json")

# What tokenizer.json remembers of the last call, and would apply to every later one.
_CALL_STATE = (
    "max_length",
    "stride",
    "truncation_strategy",
    "truncation_side",
    "pad_to_multiple_of",
    "pad_token_type_id",
)


def read_tokenizer(
    directory: Path,
    *,
    padding_side: Literal["left", "right"] | None,
    trust_remote_code: bool,
    borrows_padding: bool = False,
) -> PreTrainedTokenizerBase:
    """The tokenizer of a directory, without truncation and padding of its own.

    Args:
        padding_side: None for the tokenizer's own.
        borrows_padding: whether the end of text may stand for padding where there is none: where padding is told by its
            place, as language models do, any token will do.

    Raises:
        ConfigError: there is none, or it has no padding token.
    """
    if not any((directory / name).is_file() for name in _TOKENIZER_FILES) and not any(directory.glob("*.model")):
        raise ConfigError(  # transformers would make one with an empty vocabulary
            f"{directory} has no tokenizer.",
            why=f"none of {', '.join(_TOKENIZER_FILES)} and *.model is there.",
            fix="model.tokenizer=<a directory or Hub id that has one>.",
        )
    side = {} if padding_side is None else {"padding_side": padding_side}
    try:
        tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=trust_remote_code, **side)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"no tokenizer could be read from {directory}.",
            why=str(error).splitlines()[0],
            fix="model.tokenizer=<a directory or Hub id that has one>.",
        ) from error
    reset_tokenizer(tokenizer)
    require_padding(tokenizer, what=f"the tokenizer in {directory}", borrows=borrows_padding)
    return tokenizer


def require_padding(tokenizer: PreTrainedTokenizerBase, *, what: str, borrows: bool) -> None:
    """Refuses a tokenizer without a padding token.

    Args:
        what: it is, for the message.
        borrows: whether its end of text may stand for padding.

    Raises:
        ConfigError: it has none.
    """
    if tokenizer.pad_token_id is None and borrows and tokenizer.eos_token is not None:
        log.info("the tokenizer has no padding token: %s stands for it too", tokenizer.eos_token)
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token_id is None:
        raise ConfigError(
            f"{what} has no padding token.",
            why="texts of different lengths are padded to one length within a batch.",
            fix="add pad_token to its tokenizer_config.json.",
        )


def find_source_of_tokenizer(reference: str | None, *, model: Source | None) -> Source:
    """A tokenizer's directory, which needs no model config.

    Args:
        reference: where it is; None: with the model.
        model: where the model is.
    """
    if reference is None:
        assert model is not None, "the schema asks for a tokenizer where there is no source"
        return model
    path = local_path(reference)
    if path is None or path.is_file():
        return find_source(reference)
    return Source(reference, path / "model" if (path / "model" / "tokenizer.json").is_file() else path)


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """Writes a tokenizer without the truncation and padding of its last call, and with its padding side."""
    reset_tokenizer(tokenizer)
    for key in _CALL_STATE:
        tokenizer.init_kwargs.pop(key, None)
    tokenizer.init_kwargs["padding_side"] = tokenizer.padding_side
    tokenizer.save_pretrained(directory)


def reset_tokenizer(tokenizer: PreTrainedTokenizerBase) -> None:
    """Forgets truncation and padding that a tokenizer.json brought along: both are decided per call."""
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
