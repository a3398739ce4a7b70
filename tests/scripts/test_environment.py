"""scripts/environment.py as a user starts it: with the environment whole, and with nothing installed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

SCRIPT = Path(__file__).parents[2] / "scripts/environment.py"
SECRET = "hf_s3cret"


def run_script(*words: str) -> str:
    command = [sys.executable, *words]
    environment = {**os.environ, "HF_TOKEN": SECRET, "WANDB_API_KEY": SECRET}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


def test_json_names_torch_and_the_packages() -> None:
    facts = json.loads(run_script(str(SCRIPT), "--json"))
    assert facts["torch"]["version"] == torch.__version__
    assert facts["packages"]["torch"] == torch.__version__
    assert facts["python"] == platform.python_version()
    assert facts["environment"] in {"venv", "conda", "system"}
    assert facts["disk_free_gib"] > 0


def test_it_runs_where_nothing_is_installed() -> None:
    lines = run_script("-I", "-S", str(SCRIPT)).splitlines()  # -S: no site-packages
    assert "  error           ModuleNotFoundError: No module named 'torch'" in lines
    assert any(line.startswith("disk_free_gib") for line in lines)


def test_no_secret_and_no_host_name() -> None:
    printed = run_script("-I", "-S", str(SCRIPT), "--json")
    assert SECRET not in printed
    assert "host" not in json.loads(printed)
