"""The names inside a run, and that two starts never get the same directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.core.errors import ConfigError, LaunchError
from supertrainer.core.run_directory import RunDirectory, next_free


def test_the_files_of_a_run_have_these_names() -> None:
    run = RunDirectory(Path("runs/a"))
    paths = [
        *(run.config_yaml, run.config_json, run.environment_json, run.data_json, run.lock_json, run.attempts_jsonl),
        *(run.metrics_jsonl, run.logs, run.checkpoints, run.model, run.report_json, run.report_md, run.plots),
        run.report_html,
        *(run.tensorboard, run.predictions_jsonl),
    ]
    assert [str(path.relative_to("runs/a")) for path in paths] == [
        *("config.yaml", "config.json", "environment.json", "data.json", "lock.json", "attempts.jsonl"),
        *("metrics.jsonl", "logs", "checkpoints", "model", "report.json", "report.md", "plots"),
        "report.html",
        *("tensorboard", "predictions.jsonl"),
    ]
    assert run.name == "a"


def test_only_the_first_of_two_starts_made_the_directory(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "a")
    assert run.create() is True
    assert run.create() is False
    assert run.path.is_dir()


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(LaunchError, match=r"is a file[\s\S]*another run.name"):
        RunDirectory(tmp_path / "a").create()


def test_a_root_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match=r"can't be made[\s\S]*run.root=PATH"):
        RunDirectory(tmp_path / "file" / "runs" / "a").create()


def test_a_fresh_run_takes_the_next_number(tmp_path: Path) -> None:
    assert [next_free(tmp_path, "a").name for _ in range(3)] == ["a", "a-2", "a-3"]
    (tmp_path / "a-2").rmdir()
    assert next_free(tmp_path, "a").name == "a-2"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a"])
def test_a_name_that_is_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.name="):
        next_free(tmp_path, name)
