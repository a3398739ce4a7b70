"""Prints what this machine and this Python environment are, to go into a bug report.

    python scripts/environment.py [--json]

No token, host or user name is printed. It runs where torch or the whole install is broken: what stops torch from
being imported is one of the facts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from supertrainer.core.environment import collect_environment  # the checkout is on the path from here on

PACKAGES = (
    "supertrainer", "torch", "transformers", "tokenizers", "peft", "accelerate", "datasets", "huggingface-hub",
    "hydra-core", "omegaconf", "pydantic", "safetensors", "numpy", "scikit-learn", "matplotlib",
    "bitsandbytes", "trl", "liger-kernel", "flash-attn", "unsloth", "vllm", "onnxruntime", "onnxruntime-gpu",
    "tensorrt-llm", "tensorboard", "wandb", "mlflow", "submitit",
)  # fmt: skip
SLURM_COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "srun")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Prints what this machine and this Python environment are.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args().json
    facts = collect()
    print(json.dumps(facts, indent=2) if as_json else "\n".join(render(facts)))


def collect() -> dict[str, object]:
    """What a run records of its environment, less what names the user's machine, and what a failed install needs."""
    torch_error = import_torch()
    facts = collect_environment()
    del facts["host"]
    installed = {name.lower().replace("_", "-"): version for name, version in facts.pop("packages").items()}
    return {
        **facts,
        **({"torch": {"error": torch_error}} if torch_error else {}),
        "disk_free_gib": round(shutil.disk_usage(".").free / 2**30, 1),
        "environment": environment_kind(),
        "slurm_commands": [command for command in SLURM_COMMANDS if shutil.which(command)],
        "packages": {name: installed[name] for name in PACKAGES if name in installed},
    }


def import_torch() -> str | None:
    """Imports torch, so that its build and its GPUs are among the facts; gives the error where that fails."""
    try:
        importlib.import_module("torch")
    except (ImportError, OSError) as error:  # not installed, or a library or driver that doesn't load
        return f"{type(error).__name__}: {error}".replace(str(Path.home()), "~")
    return None


def environment_kind() -> str:
    """`conda`, `venv` or `system`."""
    if (Path(sys.prefix) / "conda-meta").is_dir():
        return "conda"
    return "system" if sys.prefix == sys.base_prefix else "venv"


def render(facts: dict[str, object]) -> list[str]:
    """The facts as lines that a person reads."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines.append(name)
            lines += [f"  {key:<16}{written(item)}" for key, item in value.items()]
        else:
            lines.append(f"{name:<18}{written(value)}")
    return lines


def written(value: object) -> str:
    """One value as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


if __name__ == "__main__":
    main()
