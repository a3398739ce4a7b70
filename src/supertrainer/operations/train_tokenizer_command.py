"""`scripts/train_tokenizer.py`: a byte-level BPE tokenizer of a corpus, as a directory that every library reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import ConfigError, SupertrainerError
from supertrainer.operations.corpus_arguments import CorpusTexts, add_corpus, corpus_config, corpus_files

_EPILOG = """Special tokens are <|begin_of_text|>, <|end_of_text|> and <|pad|>; each byte is a token, so any text comes
back. dataset.tokenizer=OUT trains with it. Without it, dataset.tokenizer_training.vocab_size does the same on the fly.

exit codes: 0 done; 2 the command or the corpus is refused, and nothing was written."""


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
        argv: the words after the program's name.
    """
    try:
        options = _parse(argv)
        _train(options)
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(
        prog="train_tokenizer.py", description="Trains a byte-level BPE tokenizer on a corpus.", epilog=_EPILOG
    )
    add = parser.add_argument
    add("out", type=Path, metavar="OUT", help="directory of the tokenizer; made, or empty")
    add_corpus(parser)
    add("--vocab-size", type=int, required=True, metavar="N", help="tokens in all, special ones and bytes included")
    add("--max-length", type=int, metavar="N", help="positions of the model that will use it, noted in the tokenizer")
    return parser.parse_args(argv)


def _train(options: argparse.Namespace) -> None:
    out: Path = options.out
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ConfigError(
            f"{out} is there already.", why="it isn't overwritten.", fix="another directory, or remove it."
        )
    config = corpus_config(options, tokenizer_training={"vocab_size": options.vocab_size})
    from supertrainer.data.tokenizer import train_tokenizer, write_tokenizer

    files = list(corpus_files(config, tokenizer=None))
    texts = CorpusTexts(
        files, config, no_ids=("no tokenizer can be trained on them", "the texts that they were made of.")
    )
    tokenizer = train_tokenizer(texts, vocab_size=options.vocab_size, max_length=options.max_length)
    write_tokenizer(tokenizer, out)
    left_out = "".join(f", {count:,} {kind}" for kind, count in texts.odd.items())
    print(f"{out}: {len(tokenizer):,} tokens from {texts.documents:,} documents of {texts.bytes:,} bytes{left_out}")
    print(f"scripts/count_tokens.py --tokenizer {out} --source … counts what it makes of a corpus.")
