"""What the processes of one run ask of each other. Without torch until there is more than one process.

torchrun sets RANK and WORLD_SIZE. A SLURM step counts its tasks in SLURM_PROCID and SLURM_NTASKS, but so does a lone
process in an allocation; only MASTER_ADDR says that its tasks train together.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from supertrainer.core.errors import LaunchError, SupertrainerError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

TIMEOUT = timedelta(hours=2)  # rank 0 downloads, tokenizes and reports alone while the others wait


def rank() -> int:
    """This process's number among those of the run, from 0."""
    return _from_environment("RANK", "SLURM_PROCID", default=0)


def world_size() -> int:
    """How many processes train together."""
    return _from_environment("WORLD_SIZE", "SLURM_NTASKS", default=1)


def local_rank() -> int:
    """This process's number on its machine, from 0: which device is its own."""
    return _from_environment("LOCAL_RANK", "SLURM_LOCALID", default=0)


def device_index() -> int:
    """Which of the GPUs that this process sees is its own: the only one, where the launcher hides the others."""
    import torch

    return 0 if torch.cuda.device_count() == 1 else local_rank()


def is_main() -> bool:
    """Whether this is the process that writes and reports."""
    return rank() == 0


def initialize(device: str | None = None) -> None:
    """Connects the processes of the run; nothing for a single one, or when they are connected already.

    Objects always travel over gloo, on the CPU; tensors on a GPU over nccl (rccl on AMD).

    Args:
        device: "cpu" or "cuda"; by default cuda where torch sees a GPU.

    Raises:
        LaunchError: the launcher's environment variables don't name a run.
    """
    if world_size() == 1:
        return
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    if not 0 <= rank() < world_size():
        raise LaunchError(
            f"process {rank()} of {world_size()} can't be.",
            why="ranks count from 0 to the number of processes less one; the launcher sets both.",
            fix="start it with torchrun or srun, and unset RANK and WORLD_SIZE in the shell.",
        )
    _export_slurm()
    on_cuda = torch.cuda.is_available() if device is None else device == "cuda"
    if on_cuda:
        torch.cuda.set_device(device_index())
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_cuda else "gloo", timeout=TIMEOUT)


def shutdown() -> None:
    """Ends the connection between the processes, whoever made it; nothing where there is none."""
    if "torch.distributed" not in sys.modules:
        return
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def barrier() -> None:
    """Returns once every process of the run has come here."""
    if world_size() > 1:
        import torch.distributed as dist

        dist.barrier()


def broadcast_object(value: T, *, source: int = 0) -> T:
    """The value that the process `source` gave; it must survive pickling. Every process calls it."""
    if world_size() == 1:
        return value
    import torch.distributed as dist

    holder = [value]
    dist.broadcast_object_list(holder, src=source)
    return holder[0]


def all_gather_object(value: T) -> list[T]:
    """Every process's value, by rank."""
    if world_size() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values


def all_reduce_sum(tensor: torch.Tensor) -> torch.Tensor:
    """Adds a tensor of the same shape and dtype over all processes, in place, and returns it."""
    if world_size() > 1:
        import torch.distributed as dist

        dist.all_reduce(tensor, op=dist.ReduceOp.SUM)
    return tensor


def on_main_then_broadcast(function: Callable[[], T]) -> T:
    """Runs `function` on rank 0 only and returns its value, which must survive pickling, on every process.

    Raises:
        SupertrainerError: what `function` raised, on every process. Any other exception goes on as it is on rank 0
            and reaches the others as a LaunchError, so that none waits for ever.
    """
    if world_size() == 1:
        return function()
    value: T | None = None
    error: BaseException | None = None
    if is_main():
        try:
            value = function()
            pickle.dumps(value)  # fails here rather than inside the broadcast, where the others would wait
        except BaseException as raised:
            value, error = None, raised
    shared = error if error is None or isinstance(error, SupertrainerError) else _as_launch_error(error)
    value, received = broadcast_object((value, shared))
    if error is not None:
        raise error
    if received is not None:
        raise received
    return value  # type: ignore[return-value]  # None only where T is


def _as_launch_error(error: BaseException) -> LaunchError:
    return LaunchError(
        f"rank 0 ended with {type(error).__name__}: {error}",
        why="the other processes go on only with its result.",
        fix="see rank 0's own message above this one.",
    )


def _from_environment(torchrun: str, slurm: str, *, default: int) -> int:
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        name = torchrun
    elif "MASTER_ADDR" in os.environ and "SLURM_PROCID" in os.environ and "SLURM_NTASKS" in os.environ:
        name = slurm
    else:
        return default
    text = os.environ.get(name, str(default))
    if not text.isdecimal():
        raise LaunchError(
            f"{name}={text!r} in the environment is no number.",
            why="the launcher tells each process its place by it.",
            fix="start with torchrun or srun, or unset it.",
        )
    return int(text)


def _export_slurm() -> None:
    """Gives a SLURM task the variables that torchrun sets: torch and accelerate read only those."""
    job = os.environ.get("SLURM_JOB_ID", "0")
    port = 20000 + int(job) % 20000 if job.isdecimal() else 29500  # two jobs on one node must not meet
    values = {"RANK": rank(), "WORLD_SIZE": world_size(), "LOCAL_RANK": local_rank(), "MASTER_PORT": port}
    for name, value in values.items():
        os.environ.setdefault(name, str(value))
