"""Tokens per second of the streams of documents, against the bare tokenizer on the same texts.

The tokenizer's `encode_batch` gets the same documents in lists of the same size, all in memory; the streams read them
from files, shuffle, encode, frame and lay them out in rows, as a training does that takes them as fast as they come.
The two take turns, so that a busy machine slows both; the figure is the median of the paired ratios.

    jsonl      Shakespeare's plays as JSON lines                                             bound 0.9
    parquet    the same in Parquet, row groups of 64 documents                               bound 0.9
    memmap     token ids made before, against the same bare tokenizer                        bound 0.9

    python benchmarks/loader.py [--rounds 5] [--workers 1] [--streams 32] [--length 1024] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from supertrainer.core.sources import local_path
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.tokenizer import train_tokenizer, write_tokenizer
from supertrainer.operations.tokenize_command import tokenize

TEXTS = "package://shksprdata/texts"
BOUND = 0.9
VOCABULARY = 4096
BATCH = 64  # documents that the bare tokenizer gets at once


def texts() -> list[str]:
    """The plays, divided as `dataset/pretrain/shakespeare.yaml` does, as the streams would train on them."""
    folder = local_path(TEXTS)
    assert folder is not None
    whole = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*_gut.txt"))]
    return [text for play in whole for text in play.split("\n\n\n") if text.strip()]


def dataset(path: Path, *, tokenizer: Path, workers: int) -> StreamDataset:
    """The streams of one file."""
    node = {"_target_": "-", "sources": {"text": {"path": str(path)}}, "tokenizer": str(tokenizer)}
    node |= {"workers": workers, "validation": {"share": 0.0}}
    return StreamDataset(StreamDatasetConfig.model_validate_json(json.dumps(node)), seed=1)


def ours(made: StreamDataset, *, tokens: int, options: argparse.Namespace) -> float:
    """Tokens per second until so many have come."""
    rows = options.streams
    with made.open(sequence_length=options.length, global_batch_size=rows) as stream:
        started, steps = time.perf_counter(), -(-tokens // (rows * options.length))
        for _ in range(steps):
            stream.next_step()
        return steps * rows * options.length / (time.perf_counter() - started)


def bare(documents: list[str], *, backend: Any) -> float:
    """Tokens per second of `encode_batch`."""
    started, tokens = time.perf_counter(), 0
    for begin in range(0, len(documents), BATCH):
        batch = backend.encode_batch(documents[begin : begin + BATCH], add_special_tokens=False)
        tokens += sum(len(encoding) for encoding in batch)
    return tokens / (time.perf_counter() - started)


def measured(options: argparse.Namespace, *, directory: Path) -> dict[str, Any]:
    """The figures of every form of the files."""
    documents = texts()
    trained = train_tokenizer(documents, vocab_size=VOCABULARY)
    write_tokenizer(trained, directory / "tokenizer")
    forms = {name: directory / f"plays.{name}" for name in ("jsonl", "parquet", "bin")}
    forms["jsonl"].write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    pq.write_table(pa.table({"text": documents}), forms["parquet"], row_group_size=64)
    made = {
        name: dataset(path, tokenizer=directory / "tokenizer", workers=options.workers)
        for name, path in forms.items()
        if name != "bin"
    }
    tokens = tokenize(made["jsonl"].config, output=forms["bin"])["tokens"]
    made["memmap"] = dataset(forms["bin"], tokenizer=directory / "tokenizer", workers=options.workers)
    backend = made["jsonl"].tokenizer().backend_tokenizer
    bare(documents, backend=backend)
    result: dict[str, Any] = {"tokens": tokens, "rounds": options.rounds, "workers": options.workers, "bound": BOUND}
    for name, one in made.items():
        ours(one, tokens=tokens // 10, options=options)
        pairs = [
            (ours(one, tokens=tokens, options=options), bare(documents, backend=backend)) for _ in range(options.rounds)
        ]
        result[name] = {
            "tokens_per_second": round(statistics.median(first for first, _ in pairs)),
            "bare_tokens_per_second": round(statistics.median(second for _, second in pairs)),
            "ratio": round(statistics.median(first / second for first, second in pairs), 3),
        }
    return result


def main() -> int:
    """Measures and prints; the exit code says whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = measured(options, directory=Path(name))
    forms = [name for name in result if isinstance(result[name], dict)]
    if options.json:
        print(json.dumps(result))
    for form in [] if options.json else forms:
        of = result[form]
        print(
            f"{form:8} {of['tokens_per_second']:>12,} tokens/s, bare tokenizer {of['bare_tokens_per_second']:>11,}, "
            f"ratio {of['ratio']:.2f} ({options.rounds} rounds, bound {BOUND})"
        )
    return 0 if all(result[form]["ratio"] >= BOUND for form in forms) else 1


if __name__ == "__main__":
    sys.exit(main())
