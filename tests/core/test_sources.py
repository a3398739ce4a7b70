"""Where a model or a dataset comes from."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.core.sources import local_path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "train_bert-1234").mkdir(parents=True)
    (tmp_path / "rows.csv").write_text("text\n")
    package = tmp_path / "packages" / "somedata"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    (package / "rows.csv").write_text("text\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages"), *sys.path])
    return tmp_path


@pytest.mark.parametrize("source", ["org/name", "Qwen/Qwen2.5-0.5B", "bert-base-uncased", "org/name-v1.5"])
def test_a_hub_id_is_not_local(source: str, here: Path) -> None:
    assert local_path(source) is None


def test_paths_and_packages(here: Path) -> None:
    assert local_path("rows.csv") == Path("rows.csv")
    assert local_path("runs/train_bert-1234") == Path("runs/train_bert-1234")
    assert local_path("package://somedata/rows.csv") == here / "packages" / "somedata" / "rows.csv"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("row.csv", "did you mean rows.csv"),
        ("./nothing", "is not there"),
        ("runs/train_bert-1235", "did you mean runs/train_bert-1234"),
        ("data/a/b", "is not there"),
        ("package://nosuchpackage/x", "'nosuchpackage' is not installed"),
        ("package://somedata/nothing", "has no 'nothing'"),
        ("package://../x", "is not installed"),
    ],
)
def test_what_is_missing_is_said(source: str, expected: str, here: Path) -> None:
    with pytest.raises(ConfigError, match=expected):
        local_path(source)
