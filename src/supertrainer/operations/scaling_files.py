"""What commands over the size of a model share: names, lists of sizes, and the files that they write."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import write_atomic

NAMES = {"mup": "μP", "sp": "standard parametrization"}
SMALLEST_WIDTH = 64  # two heads of 32 that share a key and value head


def whole_numbers(text: str, *, flag: str, example: str) -> list[int]:
    """The numbers of a list such as 64,128, rising.

    Raises:
        ConfigError: it is none, with the flag that it was given to, and an example.
    """
    try:
        return sorted({int(word) for word in text.split(",")})
    except ValueError:
        raise ConfigError(f"{flag} {text}: no list of whole numbers.", fix=example) from None


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows of the same keys, at least one, under a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_files(directory: Path, files: Mapping[str, bytes | str]) -> list[Path]:
    """Writes files by their names into the directory of --out, each whole or not at all.

    Raises:
        ConfigError: it can't be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_atomic(directory / name, content)
    except OSError as error:
        raise ConfigError(f"--out {directory} can't be written: {error}.", fix="name another directory.") from error
    return [directory / name for name in files]
