"""A verification of a tiny model in the test's own process, a check at a time: what is patched here is checked."""

from __future__ import annotations

from pathlib import Path

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.spine import Config
from supertrainer.config.validate import validate
from supertrainer.operations.verification.workbench import Workbench
from tiny_runs import TINY, write_rows

LORA = "trainer/common/peft_kwargs@trainer.peft_kwargs=lora"


def tiny_config(place: Path, *words: str) -> Config:
    """A tiny run of 70 rows in `place`, to be verified."""
    if not (place / "rows.csv").exists():
        write_rows(place / "rows.csv", count=70)
    given = [*TINY, f"dataset.source={place / 'rows.csv'}", "operation=verify", *words]
    return validate(compose_command(parse_command(given), environment={}, groups=read_groups(())), environment={})


def tiny_workbench(place: Path, *words: str) -> Workbench:
    """A workbench in `place`."""
    return Workbench(tiny_config(place, *words), directory=place / "aside")
