"""Token ids of an earlier run, found by everything that they follow from, and by nothing else."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import write_atomic
from supertrainer.core.user_cache import user_cache

if TYPE_CHECKING:
    import pyarrow as pa
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)
VERSION = 4  # counts up where the same rows and settings become other tokens
AUTO = "auto"
_LIBRARIES = ("transformers", "tokenizers", "jinja2")
_NOTES = b"supertrainer"
_DIGEST = 32  # bytes before the content


def cache_key(rows: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, settings: Mapping[str, Any]) -> str:
    """What token ids follow from, as 64 hexadecimal digits.

    Args:
        rows: the texts of the rows, in their order.
        tokenizer: its vocabulary, rules, special tokens and template count, wherever it was read from.
        settings: the settings that change what becomes of a row.
    """
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    facts = {
        "version": VERSION,
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "tokenizer": hashlib.sha256(backend.to_str().encode()).hexdigest(),
        "special_tokens": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "template": tokenizer.chat_template,
        "settings": dict(settings),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for text in rows:
        content = text.encode()
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)
    return digest.hexdigest()


@dataclass(frozen=True)
class TokenCache:
    """A directory with a file for every key. Any of them may be removed at any time."""

    directory: Path

    @classmethod
    def of(cls, setting: str | None) -> TokenCache | None:
        """The cache of `dataset.cache`; None where there is none."""
        if setting is None:
            return None
        if setting != AUTO:
            return cls(Path(setting).expanduser())
        return cls(user_cache() / "tokens")

    def read(self, key: str) -> tuple[pa.Table, dict[str, Any]] | None:
        """The table and notes under a key; None where there is none, or it is damaged."""
        import pyarrow as pa

        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(memoryview(content)[_DIGEST:]).digest() != content[:_DIGEST]:
            log.warning("%s is damaged; the rows are encoded again.", path)
            return None
        table = pa.ipc.open_stream(pa.py_buffer(content)[_DIGEST:]).read_all()
        notes: dict[str, Any] = json.loads(table.schema.metadata[_NOTES])
        log.info("Token ids from %s.", path)
        return table.replace_schema_metadata(None), notes

    def write(self, key: str, table: pa.Table, notes: Mapping[str, Any]) -> None:
        """Keeps a table; a reader sees all of it or nothing, and of two writers the last one stays.

        Raises:
            ConfigError: the directory can't be written.
        """
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        described = table.replace_schema_metadata({_NOTES: json.dumps(dict(notes)).encode()})
        with pa.ipc.new_stream(sink, described.schema) as writer:
            writer.write_table(described)
        content = sink.getvalue().to_pybytes()
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            write_atomic(self._path(key), hashlib.sha256(content).digest() + content)
        except OSError as error:
            raise ConfigError(
                f"dataset.cache: {self.directory} can't be written: {error}.",
                fix="another directory, or dataset.cache=null.",
            ) from None

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}.arrow"
