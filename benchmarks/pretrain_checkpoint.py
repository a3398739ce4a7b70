"""How long pretraining stands still for a checkpoint, and how long a resumed run takes to its first batch.

    saving     a decoder's weights and AdamW's moments, written by the trainer's own writer: the seconds of a save that
               waits for the disk, against those that `async_save` stops the training for                  bound 0.1
    resuming   from opening the data where a checkpoint of a late step left it to the first rows, against one of an
               early step: nothing may be read again to get there                                          bound 1.5

Rounds are paired, and take turns; figures are medians.

    python benchmarks/pretrain_checkpoint.py [--rounds 5] [--layers 8] [--width 512] [--late 400] [--json]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from supertrainer.checkpoint.store import CheckpointStore
from supertrainer.data.streams.dataset import StreamDataset
from supertrainer.data.streams.schema import StreamDatasetConfig
from supertrainer.data.streams.train_stream import merge_states
from supertrainer.models.mup import parameter_groups
from supertrainer.models.pretrain import DecoderModel
from supertrainer.models.schema import DecoderModelConfig
from supertrainer.trainers.pretraining.optimizer import training_state
from supertrainer.trainers.pretraining.saving import CheckpointWriter, lone_process_is_meant

SOURCE = "package://shksprdata/texts/*_gut.txt"
VOCABULARY, ROWS, LENGTH, EARLY = 4096, 8, 256, 2
BOUNDS = {"saving": 0.1, "resuming": 1.5}


def trained(*, layers: int, width: int) -> tuple[torch.nn.Module, torch.optim.AdamW]:
    """A decoder and its optimizer after a step."""
    sizes = {"num_layers": layers, "hidden_size": width, "num_heads": width // 64, "num_kv_heads": width // 64}
    model = DecoderModel(DecoderModelConfig.model_validate({"_target_": "-", **sizes, "max_length": LENGTH}))
    decoder = model.build(VOCABULARY)
    model.initialize(decoder, seed=1, vocab_size=VOCABULARY)
    optimizer = torch.optim.AdamW(
        parameter_groups(decoder, model.table(VOCABULARY), lr=1e-3, weight_decay=0.1, eps=1e-8)
    )
    for parameter in decoder.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return decoder, optimizer


def saving(options: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Seconds that both kinds of saves stop the training for; the first of each, which makes room, is left out."""
    decoder, optimizer = trained(layers=options.layers, width=options.width)
    state = training_state(decoder, optimizer)
    writers = {}
    for name in ("synchronous", "asynchronous"):
        store = CheckpointStore(directory / name, keep_last=1, keep_best=None)
        store.prepare()
        writers[name] = CheckpointWriter(store, in_background=name == "asynchronous")
    blocked: dict[str, list[float]] = {name: [] for name in writers}
    with lone_process_is_meant():
        for step in range(1, options.rounds + 2):
            for name, writer in list(writers.items())[:: 1 if step % 2 else -1]:
                began = time.perf_counter()
                writer.save(state, {"step": step}, step=step, extra={})
                blocked[name].append(time.perf_counter() - began)
                writer.wait()
    for writer in writers.values():
        writer.close()
    pairs = list(zip(blocked["asynchronous"][1:], blocked["synchronous"][1:], strict=True))
    return {
        "mib": round(sum(tensor.nbytes for part in state.values() for tensor in part.values()) / 2**20),
        "seconds": round(statistics.median(first for first, _ in pairs), 4),
        "synchronous_seconds": round(statistics.median(second for _, second in pairs), 4),
        "ratio": round(statistics.median(first / second for first, second in pairs), 3),
    }


def corpus() -> StreamDataset:
    """A dataset that has opened nothing yet, as a new process has it; its tokenizer is made already."""
    return StreamDataset(
        StreamDatasetConfig.model_validate(
            {"_target_": "-", "sources": {"plays": {"path": SOURCE}}, "tokenizer_training": {"vocab_size": VOCABULARY}}
        ),
        seed=1,
    )


def state_after(steps: int) -> Mapping[str, Any]:
    """The data's part of a checkpoint."""
    stream = corpus().open(sequence_length=LENGTH, global_batch_size=ROWS)
    for _ in range(steps):
        stream.next_step()
    state: Mapping[str, Any] = merge_states([stream.state()])
    stream.close()
    return state


def seconds_to_first_rows(state: Mapping[str, Any]) -> float:
    """From a dataset that is opened at a state to its first rows."""
    dataset = corpus()
    dataset.tokenizer()
    began = time.perf_counter()
    stream = dataset.open(sequence_length=LENGTH, global_batch_size=ROWS, state=state)
    stream.next_step()
    taken = time.perf_counter() - began
    stream.close()
    return taken


def resuming(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds to the first rows from an early and from a late state."""
    states = {"early": state_after(EARLY), "late": state_after(options.late)}
    taken: dict[str, list[float]] = {name: [] for name in states}
    for turn in range(options.rounds):
        for name in list(states)[:: 1 if turn % 2 else -1]:
            taken[name].append(seconds_to_first_rows(states[name]))
    return {
        "steps": [EARLY, options.late],
        "seconds": round(statistics.median(taken["late"]), 4),
        "early_seconds": round(statistics.median(taken["early"]), 4),
        "ratio": round(statistics.median(b / a for a, b in zip(taken["early"], taken["late"], strict=True)), 3),
    }


def main() -> int:
    """Measures and prints; the exit code says whether both bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=512, help="a multiple of 64")
    parser.add_argument("--late", type=int, default=400, help="steps before the late state")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        result = {"saving": saving(options, Path(name)), "resuming": resuming(options)}
    print(json.dumps(result)) if options.json else show(result)
    return 0 if all(result[name]["ratio"] <= bound for name, bound in BOUNDS.items()) else 1


def show(result: Mapping[str, Mapping[str, Any]]) -> None:
    """The result in lines."""
    saved, resumed = result["saving"], result["resuming"]
    print(
        f"saving {saved['mib']:,} MiB stops the training for {saved['seconds']:.3f} s, {saved['ratio']:.2f} of the "
        f"{saved['synchronous_seconds']:.3f} s that it takes (bound {BOUNDS['saving']})"
    )
    print(
        f"resuming at step {resumed['steps'][1]} gives its first rows after {resumed['seconds']:.3f} s, "
        f"{resumed['ratio']:.2f} of the {resumed['early_seconds']:.3f} s at step {resumed['steps'][0]} "
        f"(bound {BOUNDS['resuming']})"
    )


if __name__ == "__main__":
    sys.exit(main())
