"""One of the processes that a verification starts: trains the config it is given, and nothing else.

python -m supertrainer.operations.verification.worker [--in-doubles] CONFIG.yaml allow_targets=[…]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.core import distributed
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.logging import setup_logging
from supertrainer.core.placement import Placement, planned
from supertrainer.core.run_directory import RunDirectory
from supertrainer.operations.verification.processes import IN_DOUBLES


def main(words: Sequence[str]) -> int:
    """Trains into the directory that holds the config; returns the exit code."""
    in_doubles = words[0] == IN_DOUBLES
    file, *further = words[1:] if in_doubles else words
    setup_logging()
    try:
        with planned(Placement(processes=1, has_gpu=False)):  # the verification is one process, and starts these
            command = parse_command([f"config={file}", *further])
            composed = compose_command(command, environment={}, groups=read_groups(()))
            config = validate(composed, environment=os.environ)
        from supertrainer.operations.scoring import build_dataset, build_trainer
        from supertrainer.operations.verification.doubles import compute_in_doubles

        distributed.initialize()
        try:
            trainer = build_trainer(config, RunDirectory(Path(file).parent), dataset=build_dataset(config))
            if in_doubles:
                compute_in_doubles(trainer)
            result = trainer.train()
        finally:
            distributed.shutdown()
        return 0 if result.stopped_by is None else 1
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
