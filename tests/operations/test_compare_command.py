"""scripts/compare.py: a table, JSON or CSV; exit code 2 for a wrong command."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from supertrainer.operations.compare_command import main

SCRIPT = Path(__file__).parents[2] / "scripts" / "compare.py"


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    """Two run directories as a training leaves them, and one that isn't there."""
    for name, score in (("a", 0.5), ("b", 0.75)):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        tree = {"run": {"seed": ord(name)}, "metric": {"main": "accuracy", "greater_is_better": True}}
        (run / "config.json").write_text(json.dumps({"config": tree}))
        report = {"status": "finished", "main_metric": "accuracy", "scored_split": "test", "timing": {"seconds": 65.0}}
        (run / "report.json").write_text(json.dumps({**report, "metrics": {"test": {"accuracy": score}}}))
    return [str(tmp_path / "runs" / name) for name in ("a", "b", "gone")]


def test_a_table_for_people(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(runs) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "run", "state", "seed", "split", "accuracy", "time", "rows/s", "estimated", "measured", "ratio"
    ]  # fmt: skip
    assert lines[1].split()[1:5] == ["finished", "98", "test", "0.7500"]
    assert "1 min 05 s" in lines[1]
    assert "missing" in lines[3]


def test_the_same_for_programs(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*runs, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["metrics"].get("accuracy") for row in rows] == [0.75, 0.5, None]
    assert rows[0]["config"] == {"run.seed": 98}
    assert main([*runs, "--csv"]) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["metric.accuracy"] for row in table] == ["0.75", "0.5", ""]


def test_a_directory_of_runs_is_all_of_them(runs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(Path(runs[0]).parent), runs[0]]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("words", [["--jsn", "x"], ["--json"], ["x", "--json", "--csv"]])
def test_a_wrong_command_ends_with_two(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "Fix: " in capsys.readouterr().err


def test_the_script_starts_without_torch(runs: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", str(SCRIPT), *runs], capture_output=True, text=True, check=True
    )
    assert "finished" in ended.stdout
    assert not [line for line in ended.stderr.splitlines() if line.endswith((" torch", " transformers"))]
