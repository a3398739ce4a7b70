"""The same seed gives the same bits, and deterministic means deterministic."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy
import pytest
import torch

from supertrainer.core.errors import LaunchError
from supertrainer.core.seeds import seed_everything


@pytest.fixture
def torch_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Gives torch its settings back afterwards."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    cudnn = torch.backends.cudnn
    before = (torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory)
    cudnn_before = (cudnn.deterministic, cudnn.benchmark)
    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
    cudnn.deterministic, cudnn.benchmark = cudnn_before
    torch.set_num_threads(threads)


def draw() -> tuple[float, float, float]:
    return random.random(), float(numpy.random.rand()), float(torch.rand(()))


@pytest.mark.usefixtures("torch_settings")
def test_a_seed_fixes_python_numpy_and_torch() -> None:
    seed_everything(42, deterministic=False)
    first = draw()
    seed_everything(42, deterministic=False)
    assert draw() == first
    seed_everything(43, deterministic=False)
    assert all(ours != theirs for ours, theirs in zip(draw(), first, strict=True))


@pytest.mark.usefixtures("torch_settings")
def test_a_seed_beyond_32_bits_is_taken() -> None:
    seed_everything(2**40 + 1, deterministic=False)
    assert torch.initial_seed() == 2**40 + 1


@pytest.mark.usefixtures("torch_settings")
def test_deterministic_asks_every_library_for_it() -> None:
    seed_everything(1, deterministic=True)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark) == (True, False)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    seed_everything(1, deterministic=False)
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.usefixtures("torch_settings")
def test_a_workspace_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    seed_everything(1, deterministic=True)
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.usefixtures("torch_settings")
def test_deterministic_after_cuda_has_computed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"allocation.all.allocated": 1})
    with pytest.raises(LaunchError, match="CUBLAS_WORKSPACE_CONFIG=:4096:8"):
        seed_everything(1, deterministic=True)


@pytest.mark.usefixtures("torch_settings")
def test_the_number_of_threads_is_set_where_given() -> None:
    seed_everything(1, deterministic=False, threads=2)
    assert torch.get_num_threads() == 2
    seed_everything(1, deterministic=False)
    assert torch.get_num_threads() == 2
