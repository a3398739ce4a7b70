"""Runs preparations of files that a test writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from supertrainer.data.prepare.command import main


@dataclass
class Outcome:
    """What a command ended with."""

    code: int
    out: Path
    text: str
    error: str

    def rows(self, split: str = "train") -> list[dict[str, Any]]:
        """The rows of a split."""
        return [json.loads(line) for line in (self.out / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()]

    @property
    def report(self) -> dict[str, Any]:
        """report.json."""
        return json.loads((self.out / "report.json").read_text())


Prepare = Callable[..., Outcome]


@pytest.fixture
def prepare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Prepare:
    """Writes files into `in/`, prepares them (all rows to train, any share may drop) and gives the outcome.

    `files` is one file's content, called `name`, or a mapping of names to contents.
    """

    def run(
        files: str | bytes | dict[str, str | bytes], *words: str, name: str = "rows.csv", split: bool = False
    ) -> Outcome:
        for file, content in (files if isinstance(files, dict) else {name: files}).items():
            path = tmp_path / "in" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        source = tmp_path / "in" if isinstance(files, dict) else tmp_path / "in" / name
        command = [str(source), "--out", str(tmp_path / "out"), "--overwrite", *words]
        if not split and "--splits" not in words:
            command += ["--splits", "none"]
        if "--max-dropped" not in words:
            command += ["--max-dropped", "100%"]
        code = main(command)
        printed = capsys.readouterr()
        return Outcome(code, tmp_path / "out", printed.out, printed.err)

    return run
