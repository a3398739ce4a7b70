"""Seconds to preview a config (`--cfg job`), against a bare Hydra app that composes the same configs/ unchecked.

The two commands take turns, so that a busy machine slows both; the figure is the median of the paired ratios.

    python benchmarks/startup.py [--rounds 15] [--json]

Bound: 1.5 times the bare app.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOUND = 1.5
BARE_APP = """
import hydra

@hydra.main(version_base="1.3", config_path={configs!r}, config_name="config")
def app(config):
    pass

app()
"""


def seconds(command: list[str], *, directory: Path) -> float:
    """Wall seconds of one run of a command.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    started = time.perf_counter()
    subprocess.run(
        command, cwd=directory, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    )
    return time.perf_counter() - started


def main() -> int:
    """Measures and prints; the exit code says whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        bare = directory / "bare.py"
        bare.write_text(BARE_APP.format(configs=str(ROOT / "configs")))
        ours = [sys.executable, str(ROOT / "src/supertrainer/main.py"), "+experiment=train_bert", "--cfg", "job"]
        theirs = [sys.executable, str(bare), "experiment=train_bert", "--cfg", "job"]
        for command in (ours, theirs):
            seconds(command, directory=directory)  # writes bytecode
        pairs = [
            (seconds(ours, directory=directory), seconds(theirs, directory=directory)) for _ in range(options.rounds)
        ]
    ratios = [first / second for first, second in pairs]
    result = {
        "seconds": round(statistics.median(first for first, _ in pairs), 3),
        "bare_hydra_seconds": round(statistics.median(second for _, second in pairs), 3),
        "ratio": round(statistics.median(ratios), 3),
        "ratio_quartiles": [round(value, 3) for value in statistics.quantiles(ratios, n=4)[::2]],
        "rounds": options.rounds,
        "bound": BOUND,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print(f"--cfg job        {result['seconds']:.3f} s\nbare Hydra app   {result['bare_hydra_seconds']:.3f} s")
        spread = "–".join(map(str, result["ratio_quartiles"]))
        print(f"ratio            {result['ratio']:.2f} (quartiles {spread}, {options.rounds} rounds, bound {BOUND})")
    return 0 if result["ratio"] <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
