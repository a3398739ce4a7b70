"""One of the processes that a verification starts: trains the config it is given, and nothing else.

python -m supertrainer.operations.verification.worker CONFIG.yaml allow_targets=[…]
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


def main(words: Sequence[str]) -> int:
    """Trains into the directory that holds the config; returns the exit code."""
    file = Path(words[0])
    setup_logging()
    try:
        with planned(Placement(processes=1, has_gpu=False)):  # the verification is one process, and starts these
            command = parse_command([f"config={file}", *words[1:]])
            composed = compose_command(command, environment={}, groups=read_groups(()))
            config = validate(composed, environment=os.environ)
        from supertrainer.operations.scoring import build_dataset, build_trainer

        distributed.initialize()
        try:
            dataset = build_dataset(config)
            result = build_trainer(config, RunDirectory(file.parent), dataset=dataset).train()
        finally:
            distributed.shutdown()
        return 0 if result.stopped_by is None else 1
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
