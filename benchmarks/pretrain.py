"""Tokens per second of pretraining, against a loop that an expert writes by hand and against the Hugging Face Trainer.

One decoder (width 256, four blocks, four heads of 64 that share two keys and values, 4,096 tokens) in float32 on texts
of Shakespeare, steps of 8 rows of 256 tokens, AdamW with clipping. Every side starts from the same weights and takes
the same rows in the same steps; ours also reads and encodes them meanwhile, judges every update, logs, and saves once
in every turn, beside the training. Each side is a process that waits in the middle of its training for its turn, so
that all of them see the same busy machine; a figure is the median over rounds, a ratio that of paired rounds. Where
other work fills every core, the ratio of CPU seconds (all threads) says more than that of the clock.

    ours        PretrainTrainer                                   ours compiled    trainer.compile=true
    plain       benchmarks/plain_pretraining.py                   plain compiled   torch.compile of the whole decoder
    hf          transformers.Trainer and LlamaForCausalLM         hf compiled      torch_compile=True

The mean loss of the first ten steps must be equal on every side before anything is timed. Bounds: the faster of ours at
least 1.0 × the faster of plain, ours compiled at least 1.1 × hf compiled. The share of this machine's matrix rate is
6 · N · tokens/s over what a product of two 1024 × 1024 matrices reaches in the same round.

    python benchmarks/pretrain.py [--rounds 5] [--steps 10] [--threads 1] [--sides ours,plain,…] [--json]
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
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pretrain_sides import EQUAL, LENGTH, PARAMETERS_OF_MATRICES, ROWS, WARM_UP, Pace, hugging_face, ours, plain

SIDES = ("ours", "ours compiled", "plain", "plain compiled", "hf", "hf compiled")
BOUNDS = {"ours / plain, the faster of each": 1.0, "ours / hf, compiled": 1.1}


def serve(options: argparse.Namespace) -> None:
    """A side's process: its training, a turn at a time."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes elsewhere
    pace = Pace(steps=options.steps, answers=answers)
    kind, _, compiled = options.side.partition(" ")
    settings: dict[str, Any] = {
        "compiled": bool(compiled),
        "steps": WARM_UP + options.steps * options.rounds + 1,  # the last turn ends where another step begins
    }
    directory = Path(options.directory)
    match kind:
        case "ours":
            ours(pace, **settings, save_every=options.steps, directory=directory)
        case "plain":
            plain(pace, **settings)
        case "hf":
            hugging_face(pace, **settings, directory=directory)


class Side:
    """The process of a side."""

    def __init__(self, name: str, options: argparse.Namespace, directory: Path) -> None:
        directory.mkdir()
        command = [sys.executable, __file__, f"--side={name}", f"--directory={directory}"]
        command += [f"--{key}={vars(options)[key]}" for key in ("steps", "rounds", "threads")]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ready(self) -> list[float]:
        """Waits for the end of its warm-up; its mean loss of the first steps."""
        losses: list[float] = self._answer()["losses"]
        return losses

    def turn(self) -> dict[str, float]:
        """Seconds of a turn, by the clock and of the CPU."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process {self._process.args} ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


def matrix_rate() -> float:
    """Floating point operations per second of a product of matrices, the best of a few."""
    size = 1024
    first, second = torch.randn(size, size), torch.randn(size, size)
    taken = []
    for _ in range(8):
        began = time.perf_counter()
        torch.mm(first, second)
        taken.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(taken)


def measure(options: argparse.Namespace, sides: Mapping[str, Side]) -> dict[str, Any]:
    """All sides in turn, every second round the other way round."""
    losses = {name: side.ready()[0] for name, side in sides.items()}
    rounds: list[dict[str, dict[str, float]]] = []
    rates = []
    tokens = options.steps * ROWS * LENGTH
    for turn in range(options.rounds):
        order = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        rounds.append({name: sides[name].turn() for name in order})
        rates.append(matrix_rate())
    result: dict[str, Any] = {"losses": losses, "sides": {}, "ratios": {}, "rounds": options.rounds}
    for name in sides:
        speeds = [tokens / one[name]["seconds"] for one in rounds]
        shares = [6 * PARAMETERS_OF_MATRICES * speed / rate for speed, rate in zip(speeds, rates, strict=True)]
        result["sides"][name] = {
            "tokens_per_second": round(statistics.median(speeds), 1),
            "share_of_matrix_rate": round(statistics.median(shares), 3),
        }
    result["matrix_gflops"] = round(statistics.median(rates) / 1e9, 1)
    for label, own, other in (
        ("ours / plain, the faster of each", ("ours", "ours compiled"), ("plain", "plain compiled")),
        ("ours / plain", ("ours",), ("plain",)),
        ("ours / plain, compiled", ("ours compiled",), ("plain compiled",)),
        ("ours / hf", ("ours",), ("hf",)),
        ("ours / hf, compiled", ("ours compiled",), ("hf compiled",)),
    ):
        if all(name in sides for name in (*own, *other)):
            best, rival = fastest(rounds, own), fastest(rounds, other)
            result["ratios"][label] = {
                **summary([one[rival]["seconds"] / one[best]["seconds"] for one in rounds]),
                "of_cpu_time": summary([one[rival]["cpu_seconds"] / one[best]["cpu_seconds"] for one in rounds]),
            }
    return result


def fastest(rounds: Sequence[Mapping[str, Mapping[str, float]]], names: Sequence[str]) -> str:
    """The side with the least median time."""
    return min(names, key=lambda name: statistics.median(one[name]["seconds"] for one in rounds))


def summary(ratios: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else [ratios[0]] * 3
    return {"median": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}


def main() -> int:
    """Measures and prints; the exit code says whether losses are equal and the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="of a turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sides", default=",".join(SIDES), help=f"of {', '.join(SIDES)}")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        logging.disable(logging.WARNING)
        serve(options)
        return 0
    wanted = options.sides.split(",")
    if unknown := [name for name in wanted if name not in SIDES]:
        parser.error(f"{unknown[0]} is no side: {', '.join(SIDES)}")
    with tempfile.TemporaryDirectory() as name:
        sides = {wanted_name: Side(wanted_name, options, Path(name) / wanted_name) for wanted_name in wanted}
        try:
            result = measure(options, sides)
        finally:
            for side in sides.values():
                side.close()
    result["losses_differ_by"] = max(result["losses"].values()) - min(result["losses"].values())
    print(json.dumps(result)) if options.json else show(result)
    held = [result["ratios"][label]["median"] >= bound for label, bound in BOUNDS.items() if label in result["ratios"]]
    return 0 if result["losses_differ_by"] < 1e-4 and all(held) else 1


def show(result: Mapping[str, Any]) -> None:
    """The result in lines."""
    print(f"mean losses of the first {EQUAL} steps differ by {result['losses_differ_by']:.1e} at most")
    print(f"a product of matrices: {result['matrix_gflops']} GFLOP/s")
    for name, side in result["sides"].items():
        print(f"{name:<15} {side['tokens_per_second']:8.1f} tokens/s  {side['share_of_matrix_rate']:.2f} of that")
    for label, ratio in result["ratios"].items():
        low, high = ratio["quartiles"]
        bound = f", bound {BOUNDS[label]}" if label in BOUNDS else ""
        cpu = ratio["of_cpu_time"]["median"]
        print(f"{label:<33} {ratio['median']:.2f} (quartiles {low:.2f} to {high:.2f}{bound}); by CPU time {cpu:.2f}")


if __name__ == "__main__":
    sys.exit(main())
