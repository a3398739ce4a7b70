"""Where this process trains."""

from __future__ import annotations

import torch

from supertrainer.core.distributed import device_index


def training_device() -> torch.device:
    """The GPU that is this process's own, or the CPU."""
    return torch.device("cuda", device_index()) if torch.cuda.is_available() else torch.device("cpu")


def gpu_memory_bytes() -> int | None:
    """The memory of the GPU that is this process's own; None without one."""
    device = training_device()
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None
