"""Trained tokens per second and memory of LoRA on short chats, against TRL's SFTTrainer and a plain Trainer.

SmolLM2-135M in float32, LoRA on every linear layer, short conversations (chatterbot), loss on their answers; every side
gets the same token ids and labels. Each pass is a process of its own, and they take turns, so that a busy machine slows
all; a figure is the median over the rounds. Times are those of the training loop, from the first batch to the last
update; memory is the peak of the process beyond what it had before it built the model.

    equal           the same rows in the same steps: the losses of every step, before anything is timed
    ours            batching: length                              ours packed   trainer.packing=packed
    … recomputed    with gradient_checkpointing=true, which TRL has by default
    plain           transformers.Trainer, random batches          grouped       its own grouping by length
    trl             SFTTrainer as it comes (bf16 off: a CPU has none)
    trl packed      packing=True                                  trl padding-free   padding_free=True

Bounds: the better of ours at least 1.0 × the best of the others and 2.3 × `trl`, and no more memory than the leanest.

    python benchmarks/finetune_llm.py [--rounds 2] [--steps 6] [--threads N] [--json]       # needs pip install trl
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from chats import BATCH, LORA, MICRO, PACK, RECIPE, SEED, learnt, material, mean_length, peak, plan_order, resident
from peers import others

OURS = ("ours", "ours packed", "ours recomputed", "ours packed, recomputed")
WAYS = (*OURS, "plain", "grouped", "trl", "trl packed", "trl padding-free")


def ours(way: str, *, directory: Path, rows: int, order: str) -> dict[str, Any]:
    """One epoch with `LlmTrainer`, as `operation=train` builds it."""
    from supertrainer.core.records import read_records
    from supertrainer.core.run_directory import RunDirectory
    from supertrainer.metrics.causal_lm import CausalLmMetric
    from supertrainer.metrics.schema import CausalLmMetricConfig
    from supertrainer.trainers.llm import LlmTrainer
    from supertrainer.trainers.schema import LlmTrainerConfig, NoTrackerConfig
    from supertrainer.trainers.trackers import NoTracker

    model, dataset = material(directory, rows=rows)
    packed = way.startswith("ours packed")
    rows_of_a_step = max(round(BATCH * mean_length(model, dataset) / PACK), 1) if packed else BATCH
    config = LlmTrainerConfig(
        _target_="-",
        global_batch_size=rows_of_a_step,
        batching=order,
        packing="packed" if packed else "none",
        sample_rows=0,
        peft_kwargs={**LORA, "target_modules": "auto"},
        training_kwargs={
            **RECIPE,
            "per_device_train_batch_size": 1 if packed else MICRO,
            "gradient_checkpointing": way.endswith("recomputed"),
        },
    )
    run = RunDirectory(directory / "run")
    run.create()
    trainer = LlmTrainer(
        config,
        run=run,
        model=model,
        dataset=dataset,
        metric=CausalLmMetric(CausalLmMetricConfig(_target_="-")),
        tracker=NoTracker(NoTrackerConfig(_target_="-")),
        seed=SEED,
    )
    trainer.rows("train")
    before = resident()
    result = trainer.train()
    losses = [row["loss"] for row in read_records(run.metrics_jsonl).rows]
    return {"seconds": result.seconds, "losses": losses, "tokens": learnt(dataset, model), "memory": peak() - before}


def serve(options: argparse.Namespace) -> None:
    """One pass in a process of its own; prints what was measured."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    with tempfile.TemporaryDirectory() as name:
        directory, rows = Path(name), options.steps * BATCH
        if options.way.startswith("ours"):
            order = "random" if options.equal else "length"
            measured = ours(options.way, directory=directory, rows=rows, order=order)
        else:
            given = plan_order(directory=directory, rows=rows) if options.equal else None
            measured = others("in order" if options.equal else options.way, directory=directory, rows=rows, order=given)
    print(json.dumps(measured), file=answers, flush=True)


def run(way: str, options: argparse.Namespace, *, equal: bool = False) -> dict[str, Any]:
    """One pass of one side."""
    steps = 3 if equal else options.steps
    command = [sys.executable, __file__, f"--way={way}", f"--steps={steps}", f"--threads={options.threads}"]
    done = subprocess.run([*command, *(["--equal"] if equal else [])], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All sides, in turn."""
    losses = [run(way, options, equal=True)["losses"] for way in ("ours", "plain")]
    difference = max(abs(first - second) for first, second in zip(*losses, strict=True))
    rounds = []
    for turn in range(options.rounds):
        order = WAYS if turn % 2 == 0 else WAYS[::-1]
        rounds.append({way: run(way, options) for way in order})
    result: dict[str, Any] = {"equal": difference, "losses": losses[0], "ways": {}}
    for way in WAYS:
        found = [taken[way] for taken in rounds]
        result["ways"][way] = {
            "tokens_per_second": round(statistics.median(one["tokens"] / one["seconds"] for one in found), 1),
            "of_trl": round(statistics.median(t["trl"]["seconds"] / t[way]["seconds"] for t in rounds), 2),
            "memory_mib": round(statistics.median(one["memory"] for one in found)),
        }
    return result


def main() -> int:
    """Measures and prints; the exit code says whether losses are equal and all bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--equal", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        logging.disable(logging.WARNING)
        torch.set_num_threads(options.threads)
        serve(options)
        return 0
    result = measure(options)
    ways = result["ways"]
    own = max(ways[way]["of_trl"] for way in OURS)
    best = max(ways[way]["of_trl"] for way in WAYS[len(OURS) :])
    leanest = min(ways[way]["memory_mib"] for way in WAYS[len(OURS) :])
    result |= {"of_the_best": round(own / best, 2), "of_trl": own}
    result["memory_of_the_leanest"] = round(min(ways[way]["memory_mib"] for way in OURS) / leanest, 2)
    print(json.dumps(result)) if options.json else show(result)
    held = result["equal"] < 1e-4 and result["of_the_best"] >= 1.0 and own >= 2.3
    return 0 if held and result["memory_of_the_leanest"] <= 1.0 else 1


def show(result: Mapping[str, Any]) -> None:
    """The result in lines."""
    print(f"losses of equal steps differ by {result['equal']:.1e} at most")
    for way, found in result["ways"].items():
        print(
            f"{way:<24} {found['tokens_per_second']:7.1f} trained tokens/s  {found['of_trl']:5.2f} of trl  "
            f"{found['memory_mib']:6} MiB"
        )
    print(
        f"the better of ours: {result['of_the_best']} of the best other (bound 1.0), {result['of_trl']} of trl (2.3), "
        f"memory {result['memory_of_the_leanest']} of the leanest (1.0)"
    )


if __name__ == "__main__":
    sys.exit(main())
