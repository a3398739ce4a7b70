"""What environment.json tells, and what it must not."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from supertrainer.core import environment


def test_the_environment_names_python_packages_and_machine(tmp_path: Path) -> None:
    environment.write_environment(tmp_path / "environment.json")
    written = json.loads((tmp_path / "environment.json").read_text())
    assert written["python"] == platform.python_version()
    assert written["packages"]["pytest"] == pytest.__version__
    assert written["cpu_count"] >= written["usable_cpu_count"] >= 1
    assert written["memory_gib"] > 0


def test_no_variable_beyond_the_list_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment.write_environment(tmp_path / "environment.json")
    text = (tmp_path / "environment.json").read_text()
    assert "hf_abcdefgh" not in text
    assert "0123456789" not in text
    assert json.loads(text)["variables"]["OMP_NUM_THREADS"] == "1"


def test_torch_is_asked_only_where_it_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert environment.collect_environment()["torch"] == {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }
    monkeypatch.delitem(sys.modules, "torch")
    assert "torch" not in environment.collect_environment()


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_code_is_named_by_its_commit_and_by_changes_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.check_output(["git", "-C", tmp_path, *names, *arguments], text=True).strip()

    code = tmp_path / "environment.py"
    code.write_text("1")
    monkeypatch.setattr(environment, "__file__", str(code))
    assert environment.code_version() is None  # no repository
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "other code")
    assert environment.code_version() is None  # somebody's repository with a .venv that holds this package
    git("add", "environment.py")
    git("commit", "-q", "-m", "a")
    assert environment.code_version() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    (tmp_path / "scratch").touch()
    assert environment.code_version() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    code.write_text("2")
    assert environment.code_version() == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_a_machine_without_git_has_no_code_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert environment.code_version() is None
