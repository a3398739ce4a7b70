"""Programs of SLURM's names that answer with what the real ones were seen to answer, and a run directory to fill."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from supertrainer.core.run_directory import RunDirectory


class Programs:
    """The only programs on the PATH. One that wasn't added is absent."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._cases: dict[str, list[str]] = {}
        self._log = directory / "calls.txt"

    def add(self, name: str, *, stdout: str = "", stderr: str = "", code: int = 0, when: str = "") -> None:
        """Lets a program answer; `when` is a part of its arguments, and of several that fit the first added holds."""
        answer = f"printf '%s' {shlex.quote(stdout)}; printf '%s' {shlex.quote(stderr)} >&2; exit {code}"
        self._cases.setdefault(name, []).append(f'case "$*" in *{shlex.quote(when)}*) {answer};; esac')
        lines = ["#!/bin/sh", f'echo "{name} $*" >> {shlex.quote(str(self._log))}', *self._cases[name], "exit 1"]
        program = self.directory / name
        program.write_text("\n".join(lines) + "\n")
        program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """Every command that was run, in order."""
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    directory = tmp_path / "programs"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_QOS", "SBATCH_CONSTRAINT", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    return Programs(directory)


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "bert-1")
    run.logs.mkdir(parents=True)
    run.config_yaml.write_text("operation: train\n")
    return run
