"""Everything that makes a run repeatable bit by bit on the same machine: seeds, deterministic kernels, threads."""

from __future__ import annotations

import os
import random

from supertrainer.core.errors import LaunchError

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def seed_everything(seed: int, *, deterministic: bool, threads: int | None = None) -> None:
    """Seeds Python, numpy and torch (every device) and chooses torch's kernels. Call before any CUDA work.

    Args:
        seed: 0 or more.
        deterministic: only kernels that give the same bits each time; torch raises where an operation has none.
        threads: torch's threads in an operation; None leaves them. Sums are bitwise equal only for equal numbers.

    Raises:
        LaunchError: deterministic was asked for after CUDA had computed without it.
    """
    if deterministic:
        _prepare_cublas()
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if threads is not None:
        torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
    # torch would also fill every fresh tensor with NaN, which costs time and changes nothing for code that writes
    # before it reads.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = deterministic
    torch.backends.cudnn.benchmark = False  # it times kernels and picks the fastest, another one on another day


def _prepare_cublas() -> None:
    """cuBLAS reads the variable once, when the first of its handles is made."""
    if CUBLAS_WORKSPACE in os.environ:
        return
    import torch

    # A product needs tensors on the device: without any, no handle was made.
    if torch.cuda.is_initialized() and torch.cuda.memory_stats().get("allocation.all.allocated", 0):
        raise LaunchError(
            f"run.deterministic=true, but CUDA has computed already without {CUBLAS_WORKSPACE}.",
            why="cuBLAS then picks its workspace, and so the order of sums, anew each time.",
            fix=f"set {CUBLAS_WORKSPACE}=:4096:8 in the environment, or run.deterministic=false.",
        )
    os.environ[CUBLAS_WORKSPACE] = ":4096:8"
