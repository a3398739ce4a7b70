"""Texts -> token ids, with the beginning and the end of a document."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from supertrainer.core.errors import ConfigError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from supertrainer.data.streams.schema import StreamDatasetConfig

_SPACE = re.compile(r"\s")


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """What tells a tokenizer that splits texts as another one does: 64 hexadecimal digits."""
    return hashlib.sha256(_backend_json(tokenizer).encode()).hexdigest()


class DocumentEncoder:
    """Encodes documents, many at a time. Threads may share it: the tokenizer works without Python's lock."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        add_bos: bool | None,
        add_eos: bool,
        special_tokens: str,
        huge_characters: int,
    ) -> None:
        """Takes a copy of the tokenizer.

        Args:
            tokenizer: a fast one.
            add_bos: None: where it has one apart from its EOS.
            add_eos: whether each document ends with EOS.
            special_tokens: "text" or "token", what special tokens become that are written out.
            huge_characters: longer documents are encoded in pieces.

        Raises:
            ConfigError: the tokenizer can't do it.
        """
        from tokenizers import Tokenizer

        bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        if add_bos is None:
            add_bos = bos is not None and bos != eos
        for wanted, token, name in ((add_bos, bos, "bos"), (add_eos, eos, "eos")):
            if wanted and token is None:
                raise ConfigError(
                    f"dataset.add_{name}=true: the tokenizer has no {name.upper()} token.",
                    why="the model would not be told where a document begins or ends.",
                    fix=f"dataset.add_{name}=false, or a tokenizer that has one.",
                )
        self._backend = Tokenizer.from_str(_backend_json(tokenizer))
        self._backend.encode_special_tokens = special_tokens == "text"
        self._bos, self._eos = bos if add_bos else None, eos if add_eos else None
        self._huge = huge_characters
        self._characters = self._tokens = 0

    @classmethod
    def of(cls, config: StreamDatasetConfig, tokenizer: PreTrainedTokenizerBase) -> DocumentEncoder:
        """As a dataset's config says.

        Raises:
            ConfigError: the tokenizer can't do it.
        """
        return cls(
            tokenizer,
            add_bos=config.add_bos,
            add_eos=config.add_eos,
            special_tokens=config.special_tokens,
            huge_characters=config.huge_characters,
        )

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The token ids of each text: int32, with BOS and EOS once each where they are asked for."""
        pieces, counts = [], []
        for text in texts:
            cut = [text] if len(text) <= self._huge else _pieces(text, self._huge)
            pieces += cut
            counts.append(len(cut))
        encoded = [np.array(found.ids, dtype=np.int32) for found in self._encode_batch(pieces)]
        self._characters += sum(map(len, pieces))
        self._tokens += sum(map(len, encoded))
        documents, at = [], 0
        for count in counts:
            parts = encoded[at : at + count]
            at += count
            documents.append(self.framed(parts[0] if count == 1 else np.concatenate(parts)))
        return documents

    def framed(self, tokens: np.ndarray) -> np.ndarray:
        """Token ids of a document between its BOS and EOS, each of which stands there once."""
        if self._bos is not None and (not len(tokens) or tokens[0] != self._bos):
            tokens = np.concatenate([np.array([self._bos], dtype=np.int32), tokens])
        if self._eos is not None and (not len(tokens) or tokens[-1] != self._eos):
            tokens = np.concatenate([tokens, np.array([self._eos], dtype=np.int32)])
        return tokens

    @property
    def characters_a_token(self) -> float:
        """Of the texts so far, for plans of how much to read."""
        return self._characters / self._tokens if self._tokens else 3.0

    def _encode_batch(self, texts: list[str]) -> list:
        return self._backend.encode_batch_fast(texts, add_special_tokens=False) if texts else []


def _pieces(text: str, length: int) -> list[str]:
    """A text in pieces of at most `length` characters, each cut before white space where there is any."""
    pieces, begin = [], 0
    while len(text) - begin > length:
        end = begin + length
        window = text[begin + length // 2 : end]
        spaces = [found.start() for found in _SPACE.finditer(window)]
        end = begin + length // 2 + spaces[-1] if spaces else end
        pieces.append(text[begin:end])
        begin = end
    return [*pieces, text[begin:]]


def _backend_json(tokenizer: PreTrainedTokenizerBase) -> str:
    if not tokenizer.is_fast:
        raise ConfigError(
            f"{type(tokenizer).__name__} is a slow tokenizer.",
            why="documents are encoded while the model trains, many at a time.",
            fix="a tokenizer with a tokenizer.json.",
        )
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    return backend.to_str()
