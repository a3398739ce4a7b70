"""`scripts/tokenize_corpus.py`: documents -> NAME.bin, NAME.offsets and NAME.json, which training reads in place."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import ConfigError, DataError, SupertrainerError
from supertrainer.data.streams.encoding import DocumentEncoder, tokenizer_digest
from supertrainer.data.streams.memmap import MemmapWriter
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.tokenizer_files import read_tokenizer
from supertrainer.data.streams.units import ODD_KINDS
from supertrainer.operations.corpus_arguments import CorpusTexts, add_reading, corpus_config, corpus_files, in_parts

_BATCH_CHARACTERS = 4 << 20


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code, as `main.py` does."""
    try:
        options = _parse(argv)
        keys = {name: vars(options)[name] for name in ("tokenizer", "special_tokens", "cache")}
        facts = tokenize(corpus_config(options, **keys), output=options.output)
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
    encoder = DocumentEncoder.of(config.model_copy(update={"add_bos": False, "add_eos": False}), tokenizer)
    sources = list(corpus_files(config, tokenizer=digest))
    texts = CorpusTexts(sources, config, no_ids=("they are made already", "its files as they are."))
    with MemmapWriter(output, vocab_size=len(tokenizer), tokenizer=digest) as writer:
        for part in in_parts(texts, characters=_BATCH_CHARACTERS):
            for tokens in encoder.encode(part):
                writer.append(tokens)
        if not writer.documents:
            raise DataError("there is no document to write.", fix="other files, or other policies.")
        odd = {kind: texts.odd[kind] for kind in ODD_KINDS}
        stamps = {name: stamp for source in sources for name, stamp in source.fingerprint().items()}
        writer.commit(odd=odd, sources=stamps)
    seconds = time.perf_counter() - started
    return {"documents": writer.documents, "tokens": writer.tokens, "odd": odd, "seconds": seconds}


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(prog="tokenize_corpus.py", description=__doc__)
    add = parser.add_argument
    add("source", nargs=1, type="tokens={}".format, help="file, folder, 'pattern', package://MODULE/PATTERN, or Hub id")
    add("output", type=Path, help="NAME.bin, which must not be there yet")
    add_reading(parser)
    add("--tokenizer", required=True, help="directory, run directory, GGUF file or Hub id")
    add("--special-tokens", default="text", help="text or token: special tokens written out in documents")
    add("--cache", help="where compressed text is unpacked")
    return parser.parse_args(argv)
