"""Tests against a real SLURM, the project's own testbed (`make slurm-up`); without one they are skipped.

All of them share its four nodes, and the jobs of a test are cancelled when it ends: run them in one process.
SUPERTRAINER_SLURM_REQUIRED=1, which `make test-slurm` and `.ci/run` set, makes a testbed that is not there an error.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs import LONG, MAIN, Jobs
from slurm_testbed import ROOT, Slurm
from supertrainer.core.run_directory import RunDirectory
from tiny_runs import write_rows

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "core: run by .ci/run a second time, with SLURM's accounting off")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this directory, and skips it where no controller of the testbed answers."""
    here = [item for item in items if HERE in item.path.parents]
    reason = Slurm(ROOT).missing() if here else None
    if reason and os.environ.get("SUPERTRAINER_SLURM_REQUIRED") == "1":
        raise pytest.UsageError(reason)
    for item in here:
        item.add_marker("slurm")
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """The testbed, which this process too takes for its SLURM; afterwards nodes are up and no job is left."""
    for name in [name for name in os.environ if re.match("S(LURM|BATCH|RUN|ALLOC)_", name)]:
        monkeypatch.delenv(name)
    testbed = Slurm(ROOT)
    monkeypatch.setenv("SLURM_CONF", str(testbed.conf))
    yield testbed
    testbed.clean()


@pytest.fixture
def wait_for(slurm: Slurm) -> Callable[..., Any]:
    """`wait_for(predicate, seconds, what)`: see `Slurm.wait_for`."""
    return slurm.wait_for


@pytest.fixture
def kill_node(slurm: Slurm) -> Callable[[str], None]:
    """`kill_node(name)`: see `Slurm.kill_node`. The fixture `slurm` revives the node at the end."""
    return slurm.kill_node


@pytest.fixture
def revive_node(slurm: Slurm) -> Callable[[str], None]:
    """`revive_node(name)`: see `Slurm.revive_node`."""
    return slurm.revive_node


@pytest.fixture
def jobs(slurm: Slurm, tmp_path: Path) -> Jobs:
    """Tiny runs in a directory of their own, which holds rows.csv."""
    write_rows(tmp_path / "rows.csv", count=70)
    return Jobs(slurm, tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The long run, whole, by one process that nothing disturbs."""
    place = tmp_path_factory.mktemp("undisturbed")
    write_rows(place / "rows.csv", count=70)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(MAIN), *LONG, "run.name=undisturbed"]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return RunDirectory(place / "runs" / "undisturbed")
