"""Places of processes in the environment, and what two processes tell each other over gloo."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supertrainer.core import distributed
from supertrainer.core.errors import ConfigError, LaunchError

TWO_PROCESSES = Path(__file__).parent / "two_processes.py"
VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_JOB_ID"),
)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def place() -> tuple[int, int, int, bool]:
    return distributed.rank(), distributed.world_size(), distributed.local_rank(), distributed.is_main()


def test_a_process_alone_is_the_main_one(environment: pytest.MonkeyPatch) -> None:
    assert place() == (0, 1, 0, True)


def test_torchrun_gives_each_process_its_place(environment: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        environment.setenv(name, value)
    assert place() == (3, 4, 1, False)


def test_slurm_tasks_belong_together_only_with_a_master_address(environment: pytest.MonkeyPatch) -> None:
    for name, value in {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}.items():
        environment.setenv(name, value)
    assert place() == (0, 1, 0, True)
    environment.setenv("MASTER_ADDR", "node1")
    assert place() == (5, 8, 1, False)
    environment.setenv("RANK", "1")
    environment.setenv("WORLD_SIZE", "2")
    environment.setenv("LOCAL_RANK", "0")
    assert place() == (1, 2, 0, False)  # torchrun inside a SLURM task


def test_one_half_of_the_pair_is_somebody_elses_variable(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("WORLD_SIZE", "8")
    assert place() == (0, 1, 0, True)


def test_a_place_that_is_no_number_is_an_error(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "zero")
    environment.setenv("WORLD_SIZE", "2")
    with pytest.raises(LaunchError, match="RANK='zero'"):
        distributed.rank()


def test_a_rank_beyond_the_number_of_processes_is_an_error(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("RANK", "2")
    environment.setenv("WORLD_SIZE", "2")
    with pytest.raises(LaunchError, match="process 2 of 2"):
        distributed.initialize(device="cpu")


def test_one_process_talks_to_nobody(environment: pytest.MonkeyPatch) -> None:
    import torch

    distributed.initialize()
    assert not torch.distributed.is_initialized()
    assert distributed.broadcast_object("a") == "a"
    assert distributed.all_gather_object("a") == ["a"]
    assert distributed.all_reduce_sum(torch.tensor(3)).item() == 3
    distributed.barrier()
    distributed.shutdown()
    assert distributed.on_main_then_broadcast(lambda: 7) == 7


def test_one_process_raises_what_was_raised(environment: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ConfigError("a=1")

    with pytest.raises(ConfigError, match="a=1"):
        distributed.on_main_then_broadcast(refuse)


@functools.cache
def two_processes() -> tuple[dict[str, Any], dict[str, Any]]:
    """What two connected processes got: started once, looked at by several tests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    shared = clean | {"MASTER_ADDR": "127.0.0.1", "SLURM_NTASKS": "2", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, TWO_PROCESSES],
            env=shared | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (json.loads(process.communicate(timeout=120)[0]) for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    return first, second


def test_two_processes_know_their_places() -> None:
    first, second = two_processes()
    assert first["place"] == [0, 2, 0, True]
    assert second["place"] == [1, 2, 1, False]


def test_values_and_sums_reach_both() -> None:
    for got in two_processes():
        assert got["broadcast"] == {"from": 0}
        assert got["broadcast from 1"] == {"from": 1}
        assert got["gathered"] == ["of 0", "of 1"]
        assert got["sum"] == [2.0, 1.0]


def test_what_the_main_process_computes_reaches_both() -> None:
    for got in two_processes():
        assert got["main"] == ["value", "by 0"]
        assert got["none"] == ["value", None]


def test_an_error_of_ours_is_raised_on_both_with_all_its_problems() -> None:
    text = "ConfigError: a=1\n  Why: two\n  Fix: a=2\nConfigError: b=1"
    for got in two_processes():
        assert got["refused"] == ["ConfigError", text]


def test_no_process_waits_for_a_main_one_that_failed() -> None:
    first, second = two_processes()
    assert first["failed"] == ["KeyError", "'column'"]
    assert second["failed"][0] == "LaunchError"
    assert "rank 0 ended with KeyError: 'column'" in second["failed"][1]
    assert first["left"] == ["SystemExit", "3"]
    assert "rank 0 ended with SystemExit: 3" in second["left"][1]
    assert first["unpicklable"] in {"AttributeError", "PicklingError"}
    assert second["unpicklable"] == "LaunchError"


def test_shutting_down_disconnects() -> None:
    assert [got["connected"] for got in two_processes()] == [False, False]


@pytest.mark.parametrize(("job", "port"), [("12345", "32345"), ("99999", "39999"), (None, "20000")])
def test_a_slurm_job_has_a_port_of_its_own(environment: pytest.MonkeyPatch, job: str | None, port: str) -> None:
    for name, value in {"MASTER_ADDR": "node1", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}.items():
        environment.setenv(name, value)
    if job is not None:
        environment.setenv("SLURM_JOB_ID", job)
    for name in VARIABLES[:5]:
        if name != "MASTER_ADDR":
            environment.setenv(name, "")  # so that the fixture takes away what is set here
            environment.delenv(name)
    distributed._export_slurm()
    assert os.environ["MASTER_PORT"] == port
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]) == ("1", "2", "0")
