"""The options of commands that read a corpus: which sources, and how."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from supertrainer.config.schema_types import find_place
from supertrainer.core.errors import ConfigError, DataError, Problem
from supertrainer.data.streams.schema import StreamDatasetConfig

if TYPE_CHECKING:
    from supertrainer.data.streams.blocks import SourceFiles

SOURCE_HELP = """a file, a folder, a pattern, package://MODULE/PATTERN or a Hub id; NAME= before it names it; may be
repeated"""


def add_corpus(parser: argparse.ArgumentParser) -> None:
    """Adds --source and what says how sources are read."""
    parser.add_argument("--source", action="append", required=True, metavar="[NAME=]PATH", help=SOURCE_HELP)
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds what says how sources are read."""
    add = parser.add_argument
    add("--text-column", default="text", metavar="NAME", help="column or key that holds the text; default text")
    add(
        "--separator",
        metavar="TEXT",
        help=r"between documents of a plain text file, '\n\n' say; default: a file is one",
    )
    add("--format", default="auto", metavar="FORMAT", help="of all sources, where their endings don't tell")
    add("--files", metavar="PATTERN", help="of the files inside a folder or Hub id; default: all of a format")


def corpus_config(options: argparse.Namespace, **keys: Any) -> StreamDatasetConfig:
    """The dataset that the options describe, read as `operation=train` would read it.

    Args:
        options: of a parser that `add_corpus` has seen.
        keys: more of the dataset's, `tokenizer` or `tokenizer_training` among them.

    Raises:
        ConfigError: a source isn't there, or two have one name.
    """
    separator = options.separator
    if separator is not None:  # a shell gives no line break easily
        separator = separator.replace("\\n", "\n").replace("\\r", "\r").replace("\\t", "\t")
    sources: dict[str, dict[str, Any]] = {}
    for name, path in map(_named, options.source):
        if name in sources:
            raise ConfigError(f"two sources are named {name}.", fix=f"--source other={path}.")
        sources[name] = {
            "path": path,
            "text_column": options.text_column,
            "document_separator": separator,
            "format": options.format,
            "files": options.files,
        }
    try:
        return StreamDatasetConfig.model_validate(
            {"_target_": "supertrainer.data.streams.dataset.StreamDataset", "sources": sources, **keys}
        )
    except ValidationError as error:
        raise ConfigError([_problem(one) for one in error.errors(include_url=False)]) from None


def corpus_files(config: StreamDatasetConfig, *, tokenizer: str | None) -> Iterator[SourceFiles]:
    """The files of each source.

    Args:
        tokenizer: what tells the tokenizer in use, see `streams.encoding.tokenizer_digest`; None: none is.

    Raises:
        DataError: there are none, or of several formats.
    """
    from supertrainer.data.streams.blocks import SourceFiles

    for name, source in config.sources.items():
        yield SourceFiles.of(name, source, tokenizer=tokenizer, cache=config.cache)


class CorpusTexts:
    """The texts of a corpus as they stand in its files, and what was seen of them.

    Attributes:
        documents: that were read.
        bytes: of them, in UTF-8.
        odd: kinds of odd documents with their number, those that were met.
    """

    def __init__(self, files: Sequence[SourceFiles], config: StreamDatasetConfig, *, no_ids: tuple[str, str]) -> None:
        """
        Args:
            files: of the sources.
            config: policies for odd documents.
            no_ids: why a source of token ids is refused, and what to do instead.
        """
        self._files, self._config, self._no_ids = files, config, no_ids
        self.documents = self.bytes = 0
        self.odd: Counter[str] = Counter()

    def __iter__(self) -> Iterator[str]:
        from supertrainer.data.streams.reading import every_document

        for files in self._files:
            for text, odd in every_document(files, self._config):
                self.odd.update(odd_counts(odd))
                if not isinstance(text, str):
                    why, fix = self._no_ids
                    raise DataError(f"--source {files.name} holds token ids: {why}.", fix=fix)
                if text:
                    self.documents += 1
                    self.bytes += len(text.encode())
                    yield text


def in_parts(texts: Iterable[str], *, characters: int) -> Iterator[list[str]]:
    """Texts in lists of about as many characters."""
    part: list[str] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text)
        if size >= characters:
            yield part
            part, size = [], 0
    if part:
        yield part


def odd_counts(odd: Sequence[int]) -> dict[str, int]:
    """Kinds of odd documents with their number, those that there are."""
    from supertrainer.data.streams.units import ODD_KINDS

    return {kind: count for kind, count in zip(ODD_KINDS, odd, strict=True) if count}


def _named(word: str) -> tuple[str, str]:
    """Name and path of a source: a=b is a's path b, unless there is a file of that name."""
    name, equals, path = word.partition("=")
    if equals and name.isidentifier():
        return name, path
    stem = Path(word.rstrip("/*")).name.partition(".")[0].strip("*")
    return stem or "text", word


def _problem(error: Mapping[str, Any]) -> Problem:
    place = [str(part) for part in error["loc"]]
    if error["type"] == "value_error":
        what, _, fix = str(error["ctx"]["error"]).partition(" Fix: ")
    else:
        wanted = " or ".join(find_place(StreamDatasetConfig, error["loc"]).takes)
        what, fix = f"{error['input']!r} is given; {wanted} was expected.", f"give {wanted}."
    where = f"--source {place[1]}" if place[:1] == ["sources"] else f"--{place[0].replace('_', '-')}"
    key = f" {place[2].replace('_', '-')}" if len(place) > 2 and place[2] != "path" else ""
    return Problem(f"{where}{key}: {what}", fix=fix)
