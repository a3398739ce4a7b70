"""The copy of the code that a job runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from supertrainer.core.errors import LaunchError
from supertrainer.launch.code import code_directory, copy_code


def test_a_copy_is_made_once_and_named_by_its_content(tmp_path: Path) -> None:
    directory = copy_code(tmp_path)
    assert directory == code_directory(tmp_path) == copy_code(tmp_path)
    assert directory.parent == tmp_path / ".code"
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    there = {path.name for path in directory.iterdir()}
    assert there == {"supertrainer", "hydra_plugins", "code.json"}
    assert (directory / "supertrainer" / "configs" / "config.yaml").is_file()
    assert not list(directory.rglob("*.pyc"))


def test_the_copy_runs_by_itself_and_tells_the_users_program(tmp_path: Path) -> None:
    directory = copy_code(tmp_path)
    command = [sys.executable, str(directory / "supertrainer" / "main.py")]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    listed = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert "train_bert" in listed.stdout
    program = json.loads((directory / "code.json").read_text())["program"]
    assert f"python {program} +experiment=train_bert" in listed.stdout
    asked = "from supertrainer.core import environment as e; print(e.__file__); print(e.code_version())"
    told = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, env=environment, cwd=tmp_path, check=True
    )
    where, version = told.stdout.splitlines()
    assert where.startswith(str(directory))
    assert version == str(json.loads((directory / "code.json").read_text())["version"])


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".code").write_text("a file")
    with pytest.raises(LaunchError, match="the code can't be copied to"):
        copy_code(tmp_path)
