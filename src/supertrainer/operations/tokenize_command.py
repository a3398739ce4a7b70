"""`scripts/tokenize_corpus.py`: documents -> NAME.bin, NAME.offsets and NAME.json, which training reads in place."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from supertrainer.core.errors import ConfigError, DataError, SupertrainerError
from supertrainer.core.files import json_text
from supertrainer.data.streams.blocks import SourceFiles
from supertrainer.data.streams.encoding import DocumentEncoder, tokenizer_digest
from supertrainer.data.streams.memmap import MemmapWriter
from supertrainer.data.streams.reading import every_document
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.tokenizer_files import read_tokenizer
from supertrainer.data.streams.units import ODD_KINDS

_BATCH_CHARACTERS = 4 << 20


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code, as `main.py` does."""
    options = _parser().parse_args(argv)
    try:
        config = _config(options)
        facts = tokenize(config, output=Path(options.output))
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{options.output}: {facts['documents']:,} documents, {facts['tokens']:,} tokens, {facts['seconds']:.1f} s")
    left_out = ", ".join(f"{facts['odd'][kind]:,} {kind}" for kind in ODD_KINDS if facts["odd"][kind])
    if left_out:
        print(f"odd documents: {left_out}")
    chosen = f"dataset.sources.tokens.path={options.output} dataset.tokenizer={options.tokenizer}"
    print(f"next: dataset=pretrain/memmap {chosen}")
    return 0


def tokenize(config: StreamDatasetConfig, *, output: Path) -> dict[str, Any]:
    """Encodes all documents of a config's sources, in the order of the files, into NAME.bin and what goes with it.

    BOS and EOS aren't written: training adds them as its own config says.

    Args:
        config: sources, tokenizer and policies; the rest isn't looked at.
        output: NAME.bin, which must not be there yet. A command that fails leaves nothing behind.

    Returns:
        What was written: documents, tokens, odd documents by kind, seconds.

    Raises:
        ConfigError, DataError: a file, a document, the tokenizer or the output can't be used.
    """
    if config.tokenizer is None:
        raise ConfigError("no tokenizer is named.", fix="tokenizer=a directory or Hub id.")
    started = time.perf_counter()
    tokenizer = read_tokenizer(config.tokenizer)
    digest = tokenizer_digest(tokenizer)
    encoder = DocumentEncoder(
        tokenizer,
        add_bos=False,
        add_eos=False,
        special_tokens=config.special_tokens,
        huge_characters=config.huge_characters,
    )
    odd = [0] * len(ODD_KINDS)
    sources = [
        SourceFiles.of(name, source, tokenizer=digest, cache=config.cache) for name, source in config.sources.items()
    ]
    with MemmapWriter(output, vocab_size=len(tokenizer), tokenizer=digest) as writer:
        for source in sources:
            for texts in _batches(every_document(source, config), odd):
                for tokens in encoder.encode(texts):
                    writer.append(tokens)
        if not writer.documents:
            raise DataError("there is no document to write.", fix="other files, or other policies.")
        counts = {"odd": dict(zip(ODD_KINDS, odd, strict=True))}
        writer.commit(
            **counts, sources={name: stamp for source in sources for name, stamp in source.fingerprint().items()}
        )
    return {
        "documents": writer.documents,
        "tokens": writer.tokens,
        **counts,
        "seconds": time.perf_counter() - started,
    }


def _batches(documents: Iterable[tuple[str | np.ndarray, list[int]]], odd: list[int]) -> Iterable[list[str]]:
    texts: list[str] = []
    size = 0
    for content, left_out in documents:
        for index, count in enumerate(left_out):
            odd[index] += count
        if not isinstance(content, str):
            raise DataError("a source holds token ids already.", fix="its files as they are.")
        if content:
            texts.append(content)
            size += len(content)
        if size >= _BATCH_CHARACTERS:
            yield texts
            texts, size = [], 0
    yield texts


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenize_corpus.py", description=__doc__)
    parser.add_argument("source", help="file, folder, 'pattern', package://MODULE/PATTERN, or Hub id")
    parser.add_argument("output", help="NAME.bin, which must not be there yet")
    parser.add_argument("--tokenizer", required=True, help="directory, run directory, GGUF file or Hub id")
    parser.add_argument("--format", default="auto", help="auto, text, jsonl, parquet or arrow")
    parser.add_argument("--files", help="pattern of the files inside a folder or Hub id")
    parser.add_argument("--text-column", default="text", help="column or key that holds a document's text")
    parser.add_argument("--separator", help=r"between documents in plain text files, such as '\n\n\n'")
    parser.add_argument(
        "--special-tokens", default="text", help="text or token: special tokens written out in documents"
    )
    parser.add_argument("--cache", help="where compressed text is unpacked")
    return parser


def _config(options: argparse.Namespace) -> StreamDatasetConfig:
    separator = None if options.separator is None else options.separator.encode().decode("unicode_escape")
    source = {
        "path": options.source,
        "files": options.files,
        "format": options.format,
        "text_column": options.text_column,
        "document_separator": separator,
    }
    node = {
        "_target_": "supertrainer.data.streams.dataset.StreamDataset",
        "sources": {"tokens": source},
        "tokenizer": options.tokenizer,
        "special_tokens": options.special_tokens,
        "cache": options.cache,
    }
    try:
        return StreamDatasetConfig.model_validate_json(json_text(node))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {first['msg'].removeprefix('Value error, ')}") from None
