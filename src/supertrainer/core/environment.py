"""environment.json: what a run ran on. Read from metadata; no package is imported, no secret is written."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from supertrainer.core.files import write_json
from supertrainer.core.records import utc_now

CODE_FILE = "code.json"  # beside a copy of the package: what it was copied from

# Only these: any other variable may hold a token, a password or a path that is nobody's business.
ENVIRONMENT_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "HIP_VISIBLE_DEVICES",
    "LOCAL_WORLD_SIZE",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_CUDA_ALLOC_CONF",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "TOKENIZERS_PARALLELISM",
    "WORLD_SIZE",
)


def write_environment(path: Path) -> None:
    """Writes `collect_environment()` as JSON."""
    write_json(path, collect_environment())


def has_gpu() -> bool:
    """Whether this machine has a GPU that this process may use, told without importing torch."""
    hidden = any(os.environ.get(name) == "" for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"))
    return not hidden and any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


def collect_environment() -> dict[str, object]:
    """Python, packages, machine, code version and the few environment variables that change what a run computes.

    Torch's part (devices, threads) is there only where torch was imported before.
    """
    environment: dict[str, object] = {
        "time": utc_now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "usable_cpu_count": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "code": code_version(),
        "packages": _packages(),
        "variables": {name: os.environ[name] for name in ENVIRONMENT_VARIABLES if name in os.environ},
    }
    if "torch" in sys.modules:
        environment["torch"] = _torch()
    return environment


def copied_from() -> dict[str, Any] | None:
    """Where this code was copied from for a job: `program` that a user types, `version`; None where it is no copy."""
    told = Path(__file__).resolve().parents[2] / CODE_FILE
    return dict(json.loads(told.read_text())) if told.is_file() else None


def code_version() -> dict[str, object] | None:
    """Commit of the checkout that this code runs from, or was copied from for a job, and whether tracked files differ;
    None outside of one.
    """
    here = Path(__file__).resolve()
    origin = copied_from()
    if origin is not None:
        version: dict[str, object] | None = origin["version"]
        return version
    # A package installed into a .venv inside somebody's repository is not that repository's code.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changes = _git(here.parent, "status", "--porcelain", "--untracked-files=no")
    return None if commit is None else {"commit": commit, "dirty": bool(changes)}


def _git(directory: Path, *arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _packages() -> dict[str, str]:
    found = {package.name: package.version for package in importlib.metadata.distributions() if package.name}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _torch() -> dict[str, object]:
    import torch

    count = torch.cuda.device_count()
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "threads": torch.get_num_threads(),
        "devices": [torch.cuda.get_device_name(index) for index in range(count)],
    }
