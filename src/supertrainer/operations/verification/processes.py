"""A run in processes of its own, that are connected as torchrun connects them, on CPUs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import supertrainer
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.spine import Config
from supertrainer.core.errors import LaunchError
from supertrainer.core.files import write_atomic
from supertrainer.core.run_directory import RunDirectory

LIMIT_SECONDS = 1_800.0
POLL_SECONDS = 0.1
WORKER = "supertrainer.operations.verification.worker"
IN_DOUBLES = "--in-doubles"
_ALLOWED = "allow_targets"


def train_apart(config: Config, run: RunDirectory, *, processes: int, logs: Path, in_doubles: bool = False) -> None:
    """Trains a config, to the trained model in the run directory.

    Args:
        logs: what each process says goes there.
        in_doubles: in float64, from the same weights.

    Raises:
        LaunchError: a process failed, or they took too long; with its last line.
    """
    words = [*([IN_DOUBLES] if in_doubles else []), *written([(config, run)])]
    run_apart(WORKER, words, processes=processes, logs=logs, name=run.name)


def written(trainings: Sequence[tuple[Config, RunDirectory]]) -> list[str]:
    """Writes each config into its run directory; returns the words that name them to a worker."""
    for config, run in trainings:
        write_atomic(run.config_yaml, as_yaml({key: value for key, value in config.dump().items() if key != _ALLOWED}))
    allowed = ",".join(trainings[0][0].allow_targets)  # a snapshot never says what may be imported
    return [*(str(run.config_yaml) for _, run in trainings), f"{_ALLOWED}=[{allowed}]"]


def run_apart(worker: str, words: Sequence[str], *, processes: int, logs: Path, name: str) -> None:
    """Runs a module in connected processes, to their end: see `started_apart`."""
    with started_apart(worker, words, processes=processes, logs=logs, name=name) as wait:
        wait()


@contextmanager
def started_apart(
    worker: str, words: Sequence[str], *, processes: int, logs: Path, name: str
) -> Iterator[Callable[[], None]]:
    """Starts a module in connected processes, which run beside this one for as long as the context is open.

    Args:
        words: of its command line.
        logs: what each process says goes there.
        name: of the log files.

    Yields:
        What waits for their end. It raises a LaunchError with the last line of a process that failed, or took too long.
    """
    logs.mkdir(parents=True, exist_ok=True)
    files = [logs / f"verify-{name}-rank{rank}.log" for rank in range(processes)]
    shared = _environment(processes)
    with ExitStack() as stack:
        started = []
        for rank, file in enumerate(files):
            output = stack.enter_context(file.open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", worker, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                start_new_session=True,  # a Ctrl-C comes here, and ends them below
            )
            stack.callback(_end, process)
            started.append(process)
        yield lambda: _require_success(started, files)


def _require_success(started: list[subprocess.Popen[bytes]], files: Sequence[Path]) -> None:
    failed = _wait(started)
    if failed is not None:
        code = started[failed].returncode
        raise LaunchError(
            f"process {failed} of {len(started)} ended with exit code {code}: {_last_line(files[failed])}",
            why="what they compute together can't be compared.",
            fix=f"see {files[failed]}.",
        )


def _wait(started: list[subprocess.Popen[bytes]]) -> int | None:
    """Waits for all, or for the first that fails: the others would wait for it. Returns which one failed."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while True:
        codes = [process.poll() for process in started]
        for rank, code in enumerate(codes):
            if code:
                return rank
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > deadline:
            return codes.index(None)
        time.sleep(POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(processes: int) -> dict[str, str]:
    source = str(Path(supertrainer.__file__).resolve().parents[1])
    paths = list(dict.fromkeys([source, *(entry for entry in sys.path if entry)]))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONSAFEPATH": "1",  # else -m would put the working directory first, whatever is in it
        "CUDA_VISIBLE_DEVICES": "",  # two processes can't share a GPU
        "HIP_VISIBLE_DEVICES": "",
        "SUPERTRAINER_JOB": "0",  # no job script waits for them
        "WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _last_line(file: Path) -> str:
    lines = [line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
