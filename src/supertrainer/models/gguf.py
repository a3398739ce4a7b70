"""GGUF files: converted once to a directory that transformers reads in a second, and kept in the user's cache.

What the file's quantized weights stand for is kept as float32, which holds every value exactly.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from pathlib import Path

from supertrainer.core.errors import ConfigError, MissingDependencyError
from supertrainer.core.files import sha256_file
from supertrainer.core.user_cache import made_once, user_cache
from supertrainer.models.loading import quiet_transformers
from supertrainer.models.tokenizers import save_tokenizer

log = logging.getLogger(__name__)

_MAGIC = b"GGUF"
_NAME_DIGITS = 16


def converted(file: Path) -> Path:
    """The directory with a GGUF file's model and tokenizer as safetensors; made where it isn't there yet.

    Raises:
        ConfigError: it isn't a GGUF file, or of an architecture that transformers can't read from one.
        MissingDependencyError: the gguf package isn't installed.
    """
    with file.open("rb") as stream:
        if stream.read(len(_MAGIC)) != _MAGIC:
            raise ConfigError(
                f"{file} is no GGUF file.",
                why=f"it doesn't begin with {_MAGIC.decode()}; it may be the page or pointer that stands for one.",
                fix="download it again.",
            )
    state = file.stat()
    digest = _digest(file.resolve(), state.st_size, state.st_mtime_ns)
    directory = user_cache() / "gguf" / digest[:_NAME_DIGITS]
    if not directory.is_dir():
        log.info("%s is converted once, to %s: this takes a minute", file, directory)
    return made_once(directory, fill=lambda aside: _convert(file, aside))


@functools.cache
def _digest(file: Path, size: int, mtime_ns: int) -> str:
    """Of a file's content; asked once in a process for a file that doesn't change."""
    return sha256_file(file)


def _convert(file: Path, directory: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with quiet_transformers(), _told(file):
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype="float32")
        # The library takes the model for quantized still, and refuses to write it.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        model.config.name_or_path = ""
        model.save_pretrained(directory)
        save_tokenizer(tokenizer, directory)


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(
            f"{file} can't be read without the gguf package.", why=str(error).splitlines()[0], fix="pip install gguf."
        ) from error
    except (ValueError, NotImplementedError, KeyError) as error:
        raise ConfigError(
            f"{file} can't be converted.",
            why=str(error).splitlines()[0],
            fix="name the model that it was made from, by its Hub id or directory.",
        ) from error
