"""Tokens per second, model FLOPs utilization and peak memory."""

from __future__ import annotations

import itertools
import math
import resource
import sys
import time
from pathlib import Path

import torch
from torch import nn

# Dense 16-bit peak of one device in FLOP/s, from the vendors' data sheets; a GCD of an MI250X counts as a device.
PEAK_FLOPS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "MI300X": 1307e12,
    "MI250X": 191.5e12,
    "V100": 125e12,
}


def peak_flops(device: torch.device, *, half_precision: bool) -> float | None:
    """The device's peak in FLOP/s for the number format that is computed in; None where it isn't known."""
    if device.type != "cuda" or not half_precision:
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAK_FLOPS.items() if part in name), None)


def measured_flops(device: torch.device, dtype: torch.dtype, *, size: int = 1024, seconds: float = 0.05) -> float:
    """What the device does in FLOP/s in the product of two square matrices: its peak, where no data sheet says it.

    Args:
        device: a CPU is measured with the threads that torch has here.
        dtype: of the matrices.
        size: of a side.
        seconds: about how long it takes.
    """
    one = torch.ones(size, size, device=device, dtype=dtype)
    into = torch.empty_like(one)
    best = math.inf
    until = time.perf_counter() + seconds
    for attempt in itertools.count():
        started = time.perf_counter()
        torch.mm(one, one, out=into)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        ended = time.perf_counter()
        best = min(best, ended - started) if attempt else best  # the first one warms up
        if ended > until and attempt:
            break
    return 2 * size**3 / best


def flops_per_token(model: nn.Module) -> float:
    """FLOPs of a training step per token: 2 a weight forward, 2 for activations, 2 more for weights that are trained.

    Embedding tables are looked up, not multiplied; the products of attention scores are left out, as is usual.
    Source: Kaplan et al. 2020, section 2.1.
    """
    tables = {id(p) for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    weights = [p for p in model.parameters() if id(p) not in tables]
    return float(sum((6 if p.requires_grad else 4) * p.numel() for p in weights))


def resident_gib() -> float | None:
    """The memory that this process holds now; None where the system doesn't say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * resource.getpagesize() / 2**30 if statm.is_file() else None


def peak_memory_gib(device: torch.device) -> float:
    """The most memory that this process has held: on a GPU what torch allocated there, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resident / (2**30 if sys.platform == "darwin" else 2**20)  # bytes there, KiB elsewhere
