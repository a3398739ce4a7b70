"""What runs of the whole program share."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from check_faults import ROWS, csv_text
from tiny_models import save_tiny
from tiny_runs import write_rows
from zygote import Zygote


@pytest.fixture(scope="session")  # its imports take ten seconds
def zygote() -> Iterator[Zygote]:
    started = Zygote()
    yield started
    started.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with rows.csv: 70 rows of uneven length, two labels."""
    write_rows(tmp_path / "rows.csv", count=70)
    return tmp_path


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "base")


@pytest.fixture
def here(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with rows.csv, and base: a tiny encoder. The process stands in it."""
    shutil.copytree(base, tmp_path / "base")
    (tmp_path / "rows.csv").write_text(csv_text(ROWS))
    monkeypatch.chdir(tmp_path)
    return tmp_path
