"""Seconds from the command until all 20 runs of a sweep are queued in SLURM, against hydra-submitit-launcher.

    ours    main.py --multirun +experiment=train_bert hydra/launcher=submitit_slurm run.seed=1,…,20: validates every
            run, holds it against the cluster's limits, writes its directory, and queues them
    stock   the same words to a plain Hydra app on the same configs/, composed and queued unchecked, with Hydra and
            submitit as here: an environment of its own, which pip makes once (--environment)

They take turns, each in an empty directory and every other round the other one first, so that a busy machine slows
both; the figure is the median of the paired ratios. A run is queued when sbatch has answered, as a stand-in on the PATH
of both writes down and squeue confirms. Jobs are held, so none starts, and cancelled. Ours must also return while they
wait; the stock launcher stays until they end.

    python benchmarks/launch.py [--rounds 9] [--environment DIR] [--cluster [KEY=VALUE …]] [--json]

Queues on the testbed of `make slurm-up`, and is skipped without it; --cluster queues on this machine's own SLURM, with
the launcher's parameters that it wants, such as partition=debug.

Bound: 1.0 times the stock launcher.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUND = 1.0
RUNS = 20
PATIENCE_SECONDS = 120  # with a command that doesn't go on
STOCK = "hydra-submitit-launcher"
STOCK_VERSION = "1.2.0"
STOCK_ENVIRONMENT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / f"supertrainer/{STOCK}"
STOCK_APP = """
import hydra

@hydra.main(version_base="1.3", config_path={configs!r}, config_name="config")
def app(config):
    pass

app()
"""
SBATCH = """#!/bin/sh
PATH={path}
sbatch "$@" || exit
date +%s.%N >>{log}
"""


@dataclass(frozen=True)
class Queued:
    """What came of a command, in seconds since its start.

    Attributes:
        seconds: until all runs were queued.
        returned_seconds: until it returned; None: it stayed while they waited, or was not waited for.
    """

    seconds: float
    returned_seconds: float | None


def slurm(*command: str) -> str:
    """What one of SLURM's programs prints.

    Raises:
        FileNotFoundError: it isn't on this machine.
        subprocess.CalledProcessError: it failed; its own words stand on stderr.
    """
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def missing(*, own_cluster: bool) -> str | None:
    """Why nothing can be queued here, or None."""
    conf = os.environ.get("SLURM_CONF", "")
    testbed = Path(conf).parent / "environment"  # scripts/slurm_testbed.sh writes it
    if not own_cluster and not (testbed.is_file() and testbed.read_text().strip() == f"export SLURM_CONF={conf}"):
        return "SLURM_CONF names no testbed; this needs `make slurm-up` (or --cluster, for this machine's own SLURM)"
    try:
        answer = subprocess.run(["scontrol", "ping"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        answer = ""
    return None if " is UP" in answer else "no SLURM controller answers; this needs `make slurm-up`"


def stock_python(place: Path) -> Path:
    """The interpreter of the environment with the stock launcher, which is made if it isn't there.

    Raises:
        subprocess.CalledProcessError: venv or pip failed; its own words stand on stderr.
    """
    python, stamp = place / "bin/python", place / "packages.txt"
    packages = [f"{name}=={version(name)}" for name in ("hydra-core", "omegaconf", "submitit")]
    wanted = "\n".join([f"{STOCK}=={STOCK_VERSION}", *packages])
    if not stamp.is_file() or stamp.read_text() != wanted:
        print(f"making {place} with {STOCK}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted.split()], check=True)
        stamp.write_text(wanted)
    return python


def queue(command: list[str], *, returns: bool) -> Queued:
    """Starts a sweep in a directory of its own, and leaves neither jobs nor files.

    Args:
        returns: whether the command is waited for once its runs are queued.

    Raises:
        RuntimeError: it failed, or not all of its runs wait in the queue.
    """
    job = f"launch-benchmark-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as name:
        directory, output = Path(name), Path(name) / "output"
        stand_in, log = write_stand_in(directory)
        with output.open("wb") as stream:
            started = time.time()  # the clock of the stand-in
            process = subprocess.Popen(
                [*command, f"hydra.launcher.name={job}"], cwd=directory, stdout=stream, stderr=stream,
                env={**os.environ, "PATH": f"{stand_in.parent}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": ""},
                start_new_session=True,
            )  # fmt: skip
        try:
            while process.poll() is None and time.time() - started < PATIENCE_SECONDS:
                if not returns and log.stat().st_size:
                    break
                time.sleep(0.01)
            returned = time.time() - started if process.poll() is not None else None
            tasks = slurm("squeue", "--noheader", "--array", f"--name={job}", "--format=%T").split()
            if process.returncode or tasks != ["PENDING"] * RUNS:
                told = output.read_text(errors="replace")
                raise RuntimeError(f"{told}\n{len(tasks)} runs queued {set(tasks)}, exit code {process.returncode}")
            return Queued(float(log.read_text().split()[-1]) - started, returned)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            slurm("scancel", f"--user={getpass.getuser()}", f"--name={job}")


def write_stand_in(directory: Path) -> tuple[Path, Path]:
    """A program `sbatch` that calls the real one, and the file where it adds the time of each answer."""
    stand_in, log = directory / "bin/sbatch", directory / "queued"
    stand_in.parent.mkdir()
    stand_in.write_text(SBATCH.format(path=shlex.quote(os.environ["PATH"]), log=shlex.quote(str(log))))
    stand_in.chmod(0o755)
    log.touch()
    return stand_in, log


def pair(ours: list[str], theirs: list[str], *, ours_first: bool) -> tuple[Queued, Queued]:
    """A sweep of each side, one after the other."""
    if ours_first:
        first = queue(ours, returns=True)
        return first, queue(theirs, returns=False)
    second = queue(theirs, returns=False)
    return queue(ours, returns=True), second


def report(pairs: list[tuple[Queued, Queued]], *, as_json: bool) -> bool:
    """Prints the figures; whether the bound holds and ours returned every time."""
    ratios = [first.seconds / second.seconds for first, second in pairs]
    returned = [first.returned_seconds for first, _ in pairs if first.returned_seconds is not None]
    returns = len(returned) == len(pairs)
    result = {
        "seconds": round(statistics.median(first.seconds for first, _ in pairs), 3),
        "returned_seconds": round(statistics.median(returned), 3) if returns else None,
        "stock_seconds": round(statistics.median(second.seconds for _, second in pairs), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_quartiles": [round(value, 3) for value in statistics.quantiles(ratios, n=4)[::2]],
        "runs": RUNS,
        "rounds": len(pairs),
        "bound": BOUND,
    }
    if as_json:
        print(json.dumps(result))
    else:
        back = f"returns after {result['returned_seconds']:.3f} s" if returns else f"stayed over {PATIENCE_SECONDS} s"
        print(f"{RUNS} runs queued   {result['seconds']:.3f} s, the command {back}")
        print(f"stock launcher   {result['stock_seconds']:.3f} s, stays until the runs end")
        spread = "–".join(map(str, result["ratio_quartiles"]))
        print(f"ratio            {result['ratio']:.2f} (quartiles {spread}, {len(pairs)} rounds, bound {BOUND})")
    return result["ratio"] <= BOUND and returns


def main() -> int:
    """Measures and prints; the exit code says whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--environment", type=Path, default=STOCK_ENVIRONMENT)
    parser.add_argument("--cluster", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: quartiles need at least 2.")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # jobs are cancelled then too
    own_cluster = options.cluster is not None
    if not own_cluster:
        for variable in [name for name in os.environ if re.match("S(LURM|BATCH|RUN|ALLOC)_(?!CONF$)", name)]:
            del os.environ[variable]  # of another cluster, or of a job there
    reason = missing(own_cluster=own_cluster)
    if reason is not None:
        print(json.dumps({"skipped": reason}) if options.json else f"skipped: {reason}")
        return 0
    words = ["hydra/launcher=submitit_slurm", f"run.seed={','.join(map(str, range(1, RUNS + 1)))}"]
    words += ["+hydra.launcher.additional_parameters.hold=true", "hydra.launcher.timeout_min=10"]
    words += [f"hydra.launcher.{word}" for word in options.cluster or ()]
    python = stock_python(options.environment.absolute())
    with tempfile.TemporaryDirectory() as name:
        app = Path(name) / "app.py"
        app.write_text(STOCK_APP.format(configs=str(ROOT / "configs")))
        ours = [sys.executable, str(ROOT / "src/supertrainer/main.py"), "--multirun", "+experiment=train_bert", *words]
        theirs = [str(python), str(app), "--multirun", "experiment=train_bert", *words]
        pairs = [pair(ours, theirs, ours_first=number % 2 == 1) for number in range(options.rounds + 1)]
    return 0 if report(pairs[1:], as_json=options.json) else 1  # the first pair wrote bytecode


if __name__ == "__main__":
    sys.exit(main())
