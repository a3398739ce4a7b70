"""`scripts/lr_transfer.py`: does the best learning rate stay where it is when a model becomes wider?"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supertrainer.config.option_parser import OptionParser
from supertrainer.core.errors import INTERRUPTED, ConfigError, SupertrainerError
from supertrainer.launch.table import aligned
from supertrainer.operations.corpus_arguments import add_corpus, corpus_config
from supertrainer.operations.scaling_files import NAMES, SMALLEST_WIDTH, csv_text, whole_numbers, write_files

if TYPE_CHECKING:
    from supertrainer.benchmark.transfer import Losses, TransferSweep, Trial

FARTHEST = 1.0  # doublings between the best rates of the narrowest and the widest model
_EPILOG = """Each run is trained by the ordinary trainer, for the same steps on the same rows, and scored on held-out
documents. A run that doesn't have its learning rate for half of its steps, since it warms up, is an error.

exit codes: 0 the best rate of μP moves by a doubling at most; 1 it moves farther, or a run failed; 2 the command is
refused; 130 stopped. docs/mup.md shows an outcome."""


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit code.

    Args:
        argv: the words after the program's name.
    """
    try:
        options = _parse(argv)
        return _run(_sweep(options), options)
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped: --out has the widths that were done.", file=sys.stderr)
        return INTERRUPTED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = OptionParser(
        prog="lr_transfer.py",
        description="Trains decoders of several widths with several learning rates, under μP and under the standard\n"
        "parametrization, and shows where the loss is least.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="trials.csv and lr_transfer.png")
    add_corpus(parser)
    add("--widths", default="64,128,256", metavar="N,N,…", help="multiples of 64; default 64,128,256")
    add("--rates", default="-11,-10,-9,-8,-7,-6", metavar="E,E,…", help="powers of two; default -11 to -6")
    add("--steps", type=int, default=400, metavar="N", help="of each run; default 400")
    add("--warmup-steps", type=int, default=60, metavar="N", help="at most half of them; default 60")
    add("--vocab-size", type=int, default=512, metavar="N", help="of the tokenizer that is trained; default 512")
    add("--held-out", type=float, default=0.1, metavar="X", help="share of the documents that is scored; default 0.1")
    add("--only", choices=list(NAMES), metavar="mup|sp", help="one parametrization; default both")
    return parser.parse_args(argv)


def _sweep(options: argparse.Namespace) -> TransferSweep:
    from supertrainer.benchmark.transfer import TransferSweep

    widths = whole_numbers(options.widths, flag="--widths", example="--widths=64,128.")
    exponents = whole_numbers(options.rates, flag="--rates", example="--rates=-10,-8,-6.")
    if len(widths) < 2 or any(width < 1 or width % SMALLEST_WIDTH for width in widths):
        raise ConfigError(
            f"--widths {options.widths}: two or more multiples of {SMALLEST_WIDTH} are needed.",
            why="heads have 32 dimensions, and two share a key.",
            fix="--widths 64,128,256.",
        )
    if len(exponents) < 2:
        raise ConfigError(f"--rates {options.rates}: two or more are needed.", fix="--rates=-10,-8,-6.")
    if not 0 <= 2 * options.warmup_steps <= options.steps:
        raise ConfigError(
            f"--warmup-steps {options.warmup_steps} of --steps {options.steps}: more than half.",
            why="a run that ends within its warm-up compares warm-ups, not learning rates.",
            fix=f"--warmup-steps {options.steps // 6}.",
        )
    rates = [2.0**exponent for exponent in exponents]
    return TransferSweep(widths, rates, steps=options.steps, warmup_steps=options.warmup_steps)


def _run(sweep: TransferSweep, options: argparse.Namespace) -> int:
    config = corpus_config(
        options, tokenizer_training={"vocab_size": options.vocab_size}, validation={"share": options.held_out}
    )
    from supertrainer.benchmark.transfer import best_rates, drift, losses, train
    from supertrainer.data.streams.dataset import StreamDataset

    dataset = StreamDataset(config, seed=sweep.seed)
    trials: list[Trial] = []
    for name in NAMES if options.only is None else [options.only]:
        for width in sweep.widths:
            for rate in sweep.rates:
                trials.append(train(sweep, dataset, parametrization=name, width=width, rate=rate))
                print(f"{NAMES[name]}, width {width}, 2^{math.log2(rate):g}: loss {trials[-1].loss:.4f}", flush=True)
            _write(trials, losses(trials), directory=options.out)
    found = losses(trials)
    print(f"\n{_table(found, sweep)}\n")
    drifts = {name: drift(best_rates(curves)) for name, curves in found.items()}
    for name, doublings in drifts.items():
        print(f"{NAMES[name]}: the best rate moves by {doublings:+g} doublings from the narrowest to the widest")
    print(f"{options.out / 'trials.csv'}\n{options.out / 'lr_transfer.png'}")
    return 0 if abs(drifts.get("mup", 0.0)) <= FARTHEST else 1


def _table(found: Losses, sweep: TransferSweep) -> str:
    from supertrainer.benchmark.transfer import best_rates

    lines = [["loss", "width", *(f"2^{math.log2(rate):g}" for rate in sweep.rates), "best"]]
    for name, curves in found.items():
        best = best_rates(curves)
        for width, curve in sorted(curves.items()):
            cells = [f"{curve[rate]:.3f}" for rate in sweep.rates]
            lines.append([NAMES[name], str(width), *cells, f"2^{math.log2(best[width]):g}"])
    return aligned(lines)


def _write(trials: Sequence[Trial], found: Losses, *, directory: Path) -> None:
    """What there is so far: a sweep that is interrupted leaves what it came to."""
    from supertrainer.benchmark.scaling_plots import draw_transfer

    title = "Held-out loss over the learning rate"
    picture = draw_transfer({NAMES[name]: curves for name, curves in found.items()}, title=title)
    write_files(directory, {"trials.csv": csv_text([vars(trial) for trial in trials]), "lr_transfer.png": picture})
