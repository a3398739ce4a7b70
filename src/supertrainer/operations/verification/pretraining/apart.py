"""Two processes, connected by gloo, make the steps of one, by DDP and by FSDP2; and go on from a kill to the bit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from supertrainer.checkpoint.manifest import step_name
from supertrainer.config.spine import Config
from supertrainer.core.errors import LaunchError
from supertrainer.core.files import write_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.verification.pretraining.reduction import plain, with_trainer
from supertrainer.operations.verification.pretraining.resuming import unlike
from supertrainer.operations.verification.pretraining.workbench import (
    PretrainWorkbench,
    logged,
    relative,
    state_of,
    train,
    weights_of,
)
from supertrainer.operations.verification.pretraining.worker import CUT_JSON
from supertrainer.operations.verification.processes import run_apart, started_apart, written
from supertrainer.operations.verification.rows import Row, broken, same_bits, within
from supertrainer.operations.verification.workbench import Weights, apart, differing
from supertrainer.trainers.pretraining.optimizer import training_state
from supertrainer.trainers.pretraining.saving import read_facts

BOUND = 1e-5  # of the way that the weights went; of losses and norms
PROCESSES = 2
STEPS, KILLED = 3, 2
WORKER = "supertrainer.operations.verification.pretraining.worker"
WAYS = {"ddp": ("DDP", 1), "fsdp": ("FSDP2", 2)}
"""A strategy -> its name for people, and rows that a process computes at once."""
_CLOSE = ("loss", "grad_norm", "eval_loss")
_WHOLE = ("step", "tokens", "data")  # of a checkpoint: what no rounding is in


@dataclass(frozen=True)
class Together:
    """Two processes that have been started.

    Attributes:
        config: what they train, but for how they share it.
        runs: their run directories: `ddp`, `ddp-resumed`, `fsdp`, `fsdp-resumed`.
        wait: returns at their end.
    """

    config: Config
    runs: Mapping[str, RunDirectory]
    wait: Callable[[], None]


@contextmanager
def two_processes(bench: PretrainWorkbench) -> Iterator[Together]:
    """Starts them; they run beside this one, since most of their time is for importing."""
    config = plain(bench.config, steps=STEPS)
    runs = {name: _directory(bench, name) for way in WAYS for name in (way, f"{way}-resumed")}
    trainings: list[tuple[Config, RunDirectory]] = []
    for way, (_, micro) in WAYS.items():
        shared = with_trainer(config, parallel={"strategy": way}, micro_batch_size=micro)
        trainings += [(shared, runs[way]), (shared, runs[f"{way}-resumed"])]
        write_json(runs[f"{way}-resumed"].path / CUT_JSON, {"run": str(runs[way].path), "step": KILLED})
    words = written(trainings)
    try:
        with started_apart(WORKER, words, processes=PROCESSES, logs=_logs(bench), name="two-processes") as wait:
            yield Together(config, runs, wait)
    finally:
        for run in runs.values():
            shutil.rmtree(run.path, ignore_errors=True)


def check_processes(bench: PretrainWorkbench, together: Together) -> Iterator[Row]:
    """Compares steps of one process with the same of two; and those with what they come to after a kill."""
    config, runs, one = together.config, together.runs, _directory(bench, "one-process")
    try:
        together.wait()
        if torch.cuda.is_available():  # two processes can't share a GPU, so what they are compared with has none either
            run_apart(WORKER, written([(config, one)]), processes=1, logs=_logs(bench), name=one.name)
        else:
            train(config, one)
    except LaunchError as error:
        yield broken(f"{PROCESSES} processes", str(error.problems[0].what))
        return
    built = bench.built(config)
    start = {name: t.cpu() for name, t in training_state(built.decoder, built.optimizer)["model"].items()}
    for way, (name, _) in WAYS.items():
        yield from _compared(f"{PROCESSES} processes by {name}", runs[way], one, start=start)
        yield from _resumed(f"{PROCESSES} processes by {name}", runs[f"{way}-resumed"], runs[way])
    shutil.rmtree(one.path)


def _compared(what: str, together: RunDirectory, alone: RunDirectory, *, start: Weights) -> Iterator[Row]:
    weights = [weights_of(state_of(run, STEPS)) for run in (together, alone)]
    yield within(f"{what} = one: weights of {STEPS} steps", apart(*weights, start=start), bound=BOUND)
    rows = [logged(run) for run in (together, alone)]
    figures = [
        relative(rows[0][step][name], value)
        for step, values in rows[1].items()
        for name, value in values.items()
        if name in _CLOSE
    ]
    yield within(f"{what} = one: losses and norms", max(figures), bound=BOUND)
    facts = [{name: _facts(run)[name] for name in _WHOLE} for run in (together, alone)]
    yield same_bits(f"{what} = one: counters, place in the data", *unlike(*facts))


def _resumed(what: str, resumed: RunDirectory, whole: RunDirectory) -> Iterator[Row]:
    pairs = [
        differing(state_of(resumed, STEPS), state_of(whole, STEPS)),
        unlike(_facts(resumed), _facts(whole)),
        unlike(logged(resumed), logged(whole)),
    ]
    yield same_bits(
        f"{what}, killed after step {KILLED} of {STEPS}: weights, moments, rows, counters",
        sum(differ for differ, _ in pairs),
        sum(total for _, total in pairs),
    )


def _directory(bench: PretrainWorkbench, name: str) -> RunDirectory:
    run = RunDirectory(bench.directory / name)
    run.create()
    return run


def _logs(bench: PretrainWorkbench) -> Path:
    return bench.directory.parent / "logs"


def _facts(run: RunDirectory) -> dict[str, object]:
    return read_facts(run.checkpoints / step_name(STEPS))
