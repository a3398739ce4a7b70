"""One of the processes that a verification starts: trains the config it is given, and nothing else.

python -m supertrainer.operations.verification.worker [--in-doubles] CONFIG.yaml allow_targets=[…]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.spine import Config
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

    def train(config: Config, run: RunDirectory) -> bool:
        from supertrainer.operations.scoring import build_dataset, build_trainer
        from supertrainer.operations.verification.doubles import compute_in_doubles

        trainer = build_trainer(config, run, dataset=build_dataset(config))
        if in_doubles:
            compute_in_doubles(trainer)
        return trainer.train().stopped_by is None

    return train_each([file], further, train)


def train_each(files: Sequence[str], further: Sequence[str], train: Callable[[Config, RunDirectory], bool]) -> int:
    """Trains one config after the other, as one of the processes that are connected; returns the exit code.

    Args:
        files: configs, each in its run directory.
        further: words of a command for all of them.
        train: says whether a training came to its end.
    """
    setup_logging()
    try:
        configs = [_config(file, further) for file in files]
        distributed.initialize()
        try:
            runs = [RunDirectory(Path(file).parent) for file in files]
            ended = all(train(config, run) for config, run in zip(configs, runs, strict=True))
        finally:
            distributed.shutdown()
        return 0 if ended else 1
    except SupertrainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code


def _config(file: str, further: Sequence[str]) -> Config:
    with planned(Placement(processes=1, has_gpu=False)):  # the verification is one process, and starts these
        composed = compose_command(parse_command([f"config={file}", *further]), environment={}, groups=read_groups(()))
        return validate(composed, environment=os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
