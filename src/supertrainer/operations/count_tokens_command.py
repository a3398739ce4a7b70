"""`scripts/count_tokens.py`: documents, bytes and tokens of a corpus, and what is odd in it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.files import json_text
from supertrainer.launch.table import aligned
from supertrainer.operations.corpus_arguments import add_corpus, corpus_config, corpus_files, in_parts, odd_counts

if TYPE_CHECKING:
    from supertrainer.data.streams.blocks import SourceFiles
    from supertrainer.data.streams.encoding import DocumentEncoder
    from supertrainer.data.streams.schema import StreamDatasetConfig

_AT_ONCE = 1 << 20  # characters that are encoded together
_EPILOG = """Tokens are counted as training takes them: each document between its BOS and EOS, odd ones left out or, if
they are huge, cut into pieces. Words are what stands between white space.

exit codes: 0 done; 2 the command or the corpus is refused."""


@dataclass
class Count:
    """What was counted of a source.

    Attributes:
        bytes: of the texts in UTF-8; 0 where the source holds token ids.
        odd: kinds of odd documents with their number.
    """

    documents: int = 0
    bytes: int = 0
    words: int = 0
    tokens: int = 0
    odd: Counter[str] = field(default_factory=Counter)

    def add(self, other: Count) -> None:
        """Adds another count."""
        for name in ("documents", "bytes", "words", "tokens"):
            setattr(self, name, vars(self)[name] + vars(other)[name])
        self.odd += other.odd

    def row(self) -> dict[str, Any]:
        """For programs."""
        return {
            "documents": self.documents,
            "bytes": self.bytes,
            "words": self.words,
            "tokens": self.tokens,
            "tokens_per_byte": self.tokens / self.bytes if self.bytes else None,
            "tokens_per_word": self.tokens / self.words if self.words else None,
            "odd": dict(self.odd),
        }


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
        argv: the words after the program's name.
    """
    try:
        options = _parse(argv)
        counts = _count(options)
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    total = Count()
    for count in counts.values():
        total.add(count)
    if options.json:
        rows = {name: count.row() for name, count in counts.items()}
        print(json_text({"sources": rows, "total": total.row()}, indent=2))
    else:
        print(_table({**counts, **({"total": total} if len(counts) > 1 else {})}))
    return 0


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(
        prog="count_tokens.py", description="Counts what a tokenizer makes of a corpus.", epilog=_EPILOG
    )
    add_corpus(parser)
    parser.add_argument("--tokenizer", required=True, metavar="DIR", help="a directory, run, GGUF file or Hub id")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser.parse_args(argv)


def _count(options: argparse.Namespace) -> dict[str, Count]:
    config = corpus_config(options, tokenizer=options.tokenizer)
    from supertrainer.data.streams.encoding import DocumentEncoder, tokenizer_digest
    from supertrainer.data.streams.tokenizer_files import read_tokenizer

    tokenizer = read_tokenizer(options.tokenizer)
    encoder = DocumentEncoder.of(config, tokenizer)
    return {
        files.name: _count_source(files, config, encoder)
        for files in corpus_files(config, tokenizer=tokenizer_digest(tokenizer))
    }


def _count_source(files: SourceFiles, config: StreamDatasetConfig, encoder: DocumentEncoder) -> Count:
    from supertrainer.data.streams.reading import every_document

    count = Count()

    def texts() -> Iterator[str]:
        for document, odd in every_document(files, config):
            count.odd.update(odd_counts(odd))
            if isinstance(document, str):
                if document:
                    yield document
            else:
                count.documents += 1
                count.tokens += len(encoder.framed(document))

    for part in in_parts(texts(), characters=_AT_ONCE):
        count.documents += len(part)
        count.bytes += sum(len(text.encode()) for text in part)
        count.words += sum(len(text.split()) for text in part)
        count.tokens += sum(map(len, encoder.encode(part)))
    return count


def _table(counts: dict[str, Count]) -> str:
    rows = [["source", "documents", "bytes", "tokens", "tokens/byte", "bytes/token", "tokens/word", "odd"]]
    for name, count in counts.items():
        has_text = count.bytes > 0 and count.words > 0
        rates = [f"{count.tokens / count.bytes:.3f}", f"{count.bytes / count.tokens:.2f}"] if has_text else ["-", "-"]
        rates.append(f"{count.tokens / count.words:.2f}" if has_text else "-")
        odd = ", ".join(f"{number:,} {kind}" for kind, number in count.odd.items()) or "none"
        rows.append([name, f"{count.documents:,}", f"{count.bytes:,}", f"{count.tokens:,}", *rates, odd])
    return aligned(rows)
