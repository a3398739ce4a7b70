"""Pretrainings whose processes are killed with SIGKILL and started again, as many as each time is said.

python tests/killed_pretraining.py SPECS.json     [{"directory": …, "processes": [1, 2], further keys of `pretrainer`}]

Without "processes" there are two, of which the second is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from supertrainer.core import distributed
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.files import write_json
from supertrainer.core.records import append_record, read_records
from supertrainer.trainers.pretraining.session import PretrainSession
from supertrainer.trainers.pretraining.update import Updater
from tiny_pretraining import pretrainer


def rows_of_steps(run: Path) -> dict[int, dict[str, list[int]]]:
    """{step: {slot: tokens}} of all processes and starts that noted their rows; a step made twice has the same ones."""
    found: dict[int, dict[str, list[int]]] = {}
    for path in sorted(run.parent.glob(f"{run.name}.rows-*.jsonl")):
        for row in read_records(path).rows:
            for slot, tokens in row["slots"].items():
                assert found.setdefault(row["step"], {}).setdefault(slot, tokens) == tokens
    return found


@contextlib.contextmanager
def rows_noted(path: Path) -> Iterator[None]:
    """Makes a process write down the rows of its steps: a line {step, slot -> tokens} each."""
    make_step, step_of_rows = PretrainSession.make_step, Updater.step
    at = [0]

    def noting(self: PretrainSession, *, request: Any) -> Any:
        at[0] = self.step + 1
        return make_step(self, request=request)

    def taking(self: Updater, rows: Any, *, request: Any) -> Any:
        slots = {str(slot): tokens.tolist() for slot, tokens in zip(rows.slots, rows.tokens, strict=True)}
        append_record(path, {"step": at[0], "slots": slots})
        return step_of_rows(self, rows, request=request)

    PretrainSession.make_step, Updater.step = noting, taking  # type: ignore[method-assign]
    try:
        yield
    finally:
        PretrainSession.make_step, Updater.step = make_step, step_of_rows  # type: ignore[method-assign]


def killed_and_resumed(spec: dict[str, Any], *, processes: list[int]) -> None:
    """Trains in as many forked processes as each number says, one start after the other.

    All of a start are killed with SIGKILL at a random moment, those of the last one train to the end. exits.json has
    their exit codes, DIRECTORY.rows-RANK.jsonl the rows that they took.
    """
    randomly, exits = random.Random(5), []
    for attempt, count in enumerate(processes, 1):
        before, port = _newest(spec), _free_port()
        started = [_forked(spec, attempt=attempt, rank=rank, count=count, port=port) for rank in range(count)]
        if attempt < len(processes):
            deadline = time.monotonic() + 60
            while _newest(spec) <= before and time.monotonic() < deadline:  # each start gets further than the last
                time.sleep(0.001)
            time.sleep(randomly.uniform(0, 0.1))
            for pid in started:
                os.kill(pid, signal.SIGKILL)
        exits += [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
    write_json(Path(spec["directory"]) / "exits.json", exits)


def one_of_two_killed(spec: dict[str, Any]) -> None:
    """Trains in two forked processes, of which the second is killed: error.json has how the first one ends."""
    port, told = _free_port(), Path(spec["directory"]).with_suffix(".error.json")
    first, second = (_forked(spec, attempt=1, rank=rank, count=2, port=port, told=told) for rank in range(2))
    while not _newest(spec):
        time.sleep(0.001)
    os.kill(second, signal.SIGKILL)
    for pid in (first, second):
        os.waitpid(pid, 0)


def _forked(spec: dict[str, Any], *, attempt: int, rank: int, count: int, port: int, told: Path | None = None) -> int:
    """The pid of a process that trains as one of several; it writes its error down where that is asked for."""
    pid = os.fork()
    if pid:
        return pid
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"}
    try:
        with rows_noted(Path(spec["directory"]).with_suffix(f".rows-{rank}.jsonl")):
            pretrainer(**spec, attempt=attempt).train()
    except SupertrainerError as error:
        if told is None:
            raise
        write_json(told, {"error": str(error)})
        os._exit(error.exit_code)
    distributed.shutdown()
    os._exit(0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _newest(spec: dict[str, Any]) -> str:
    return max((folder.name for folder in (Path(spec["directory"]) / "checkpoints").glob("step-*")), default="")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for given in json.loads(Path(sys.argv[1]).read_text()):
        if processes := given.pop("processes", None):
            killed_and_resumed(given, processes=processes)
        else:
            one_of_two_killed(given)
