"""The tokenizer of a directory, run directory, GGUF file or Hub id."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tekken.json")


def read_tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """A fast tokenizer, without truncation and padding of its own.

    Raises:
        ConfigError: there is none, or it is a slow one.
    """
    from transformers import AutoTokenizer

    path = local_path(reference)
    options: dict[str, Any] = {}
    place = reference
    if path is not None:
        place, options = _local(path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(place, **options)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"dataset.tokenizer={reference}: no tokenizer could be read.",
            why=str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__,
            fix="a directory with a tokenizer.json, or a Hub id that is cached or can be reached.",
        ) from error
    if not tokenizer.is_fast:
        raise ConfigError(
            f"dataset.tokenizer={reference} is a slow tokenizer ({type(tokenizer).__name__}).",
            why="documents are encoded while the model trains, many at a time.",
            fix="one with a tokenizer.json.",
        )
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def require_no_gaps(tokenizer: PreTrainedTokenizerBase, *, reference: str) -> None:
    """Refuses a tokenizer that gives ids beyond the number of its tokens: a model has one row for each token.

    Raises:
        ConfigError: with the tokens beyond.
    """
    count = len(tokenizer)
    beyond = {token: number for token, number in tokenizer.get_vocab().items() if number >= count}
    if not beyond:
        return
    token, highest = max(beyond.items(), key=lambda item: item[1])
    unused = highest + 1 - count
    raise ConfigError(
        f"dataset.tokenizer={reference} has {count:,} tokens, and ids up to {highest:,} ({token!r}): "
        f"{unused:,} {'id' if unused == 1 else 'ids'} in between belong to no token.",
        why="the model has a row for each token, and none for an id beyond them.",
        fix=f"give the {len(beyond):,} tokens from id {count:,} on the free ids in tokenizer.json, or train one: "
        "dataset.tokenizer=null dataset.tokenizer_training.vocab_size=N.",
    )


def _local(path: Path) -> tuple[str, dict[str, Any]]:
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            path = path.parent  # a tokenizer.json itself
        else:
            return str(path.parent), {"gguf_file": path.name}
    inside = path / "model"  # of a run directory
    if (inside / "tokenizer.json").is_file():
        return str(inside), {}
    if not any((path / name).is_file() for name in _TOKENIZER_FILES) and not any(path.glob("*.model")):
        ggufs = sorted(path.glob("*.gguf"))
        if len(ggufs) == 1:
            return str(path), {"gguf_file": ggufs[0].name}
        raise ConfigError(  # transformers would make one with an empty vocabulary
            f"dataset.tokenizer={path} has no tokenizer.",
            why=f"none of {', '.join(_TOKENIZER_FILES)} and *.model is there.",
            fix="a directory that has one.",
        )
    return str(path), {}
