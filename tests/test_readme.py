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
from supertrainer.operations.submit_command import main as submit

README = Path(__file__).parents[1] / "README.md"
MAKEFILE = README.parent / "Makefile"


def commands(program: str = "src/supertrainer/main.py") -> list[str]:
    """The lines of README's code blocks that start a program, continuations joined."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", README.read_text(), flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if program in line]


@pytest.mark.parametrize("line", commands())
def test_a_command_of_readme_is_accepted(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    groups = read_groups()
    for name in ("reviews.csv", "new.csv"):
        (tmp_path / name).write_text("text,label\nsome text,x\n")
    (tmp_path / "chats.jsonl").write_text("{}\n")
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


def test_readme_has_its_commands() -> None:
    assert len(commands()) >= 14
    assert len(commands("scripts/submit.py")) == 4


@pytest.mark.parametrize("line", commands("scripts/submit.py"))
def test_a_submit_of_readme_is_accepted(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SLURM on the machine: up to the point where it is asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    (tmp_path / "mine.yaml").write_text("experiment: train_bert\n")
    for name in ("runs/NAME/config.yaml", "sweeps/NAME/sweep.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("runs: []\n")
    words = shlex.split(line, comments=True)
    words = [
        word
        for word in words[words.index("scripts/submit.py") + 1 :]
        if word not in ("--watch", "[--watch]", "[--json]")
    ]
    sends = words[0] not in ("status", "cancel")
    assert submit([*words, *(["--dry-run", "--no-check"] if sends else [])]) == 0


def test_targets_that_readme_names_are_in_the_makefile() -> None:
    named = set(re.findall(r"`make ([a-z_-]+)", README.read_text()))
    targets = set(re.findall(r"^([a-z_-]+):", MAKEFILE.read_text(), flags=re.MULTILINE))
    assert named
    assert named <= targets
