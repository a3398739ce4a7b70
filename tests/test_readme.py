"""Every command that README gives is accepted as it is written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from supertrainer.config.command import parse_command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.snapshot import as_yaml
from supertrainer.config.validate import validate
from supertrainer.launch.sweep import plan_sweep

README = Path(__file__).parents[1] / "README.md"
MAKEFILE = README.parent / "Makefile"


def commands() -> list[str]:
    """The lines of README's code blocks that start main.py, continuations joined, comments left out."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    found = [line for line in lines if "src/supertrainer/main.py" in line]
    assert len(found) >= 12, "README has lost its commands"
    return found


@pytest.mark.parametrize("line", commands())
def test_a_command_of_readme_is_accepted(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    groups = read_groups()
    for name in ("reviews.csv", "new.csv"):
        (tmp_path / name).write_text("text,label\nsome text,x\n")
    (tmp_path / "mine.yaml").write_text("experiment: train_bert\n")
    run = tmp_path / "runs" / "NAME"
    run.mkdir(parents=True)
    whole = compose_command(parse_command(["+experiment=train_bert"]), environment={}, groups=groups)
    (run / "config.yaml").write_text(as_yaml(validate(whole, environment={}).dump()))
    words = shlex.split(line, comments=True)
    command = parse_command(words[words.index("src/supertrainer/main.py") + 1 :])
    if not command.overrides and command.source is None:
        return  # the bare command lists the experiments
    if command.multirun:
        assert len(plan_sweep(command, environment={}).runs) == 2
    else:
        assert validate(compose_command(command, environment={}, groups=groups), environment={})


def test_targets_that_readme_names_are_in_the_makefile() -> None:
    named = set(re.findall(r"`?make ([a-z_]+)", README.read_text()))
    targets = set(re.findall(r"^([a-z_]+):", MAKEFILE.read_text(), flags=re.MULTILINE))
    assert named
    assert named <= targets
