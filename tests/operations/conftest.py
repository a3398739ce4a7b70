"""What runs of the whole program share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
