"""One of the processes that the verification of a pretraining starts: trains one config after the other.

python -m supertrainer.operations.verification.pretraining.worker CONFIG.yaml … allow_targets=[…]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from supertrainer.config.spine import Config
from supertrainer.core import distributed
from supertrainer.core.files import read_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.verification.worker import train_each

CUT_JSON = "cut.json"
"""In a run directory: which other run it goes on from as if it had been that one, and from which step."""


def main(words: Sequence[str]) -> int:
    """Trains into the directory of each config; returns the exit code."""
    *files, allowed = words
    return train_each(files, [allowed], _train)


def _train(config: Config, run: RunDirectory) -> bool:
    from supertrainer.operations.verification.pretraining.resuming import leave_killed
    from supertrainer.operations.verification.pretraining.workbench import train

    if (run.path / CUT_JSON).is_file():
        whole = read_json(run.path / CUT_JSON)
        killed = RunDirectory(Path(whole["run"]))
        distributed.on_main_then_broadcast(lambda: leave_killed(killed, run, step=whole["step"]))
    train(config, run)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
