"""torchrun with two real gloo processes: the same run, killed and resumed too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tiny_runs import TINY
from zygote import Zygote

MAIN = Path(__file__).parents[2] / "src" / "supertrainer" / "main.py"
EXACT = [
    *TINY,
    "+model.config.hidden_dropout_prob=0.0",
    "+model.config.attention_probs_dropout_prob=0.0",
    "trainer.training_kwargs.per_device_train_batch_size=2",
    "trainer.training_kwargs.num_train_epochs=2",
]


def torchrun(words: list[str], *, place: Path) -> subprocess.Popen[str]:
    """Starts two processes."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(MAIN),
        *words,
    ]
    return subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_two_processes_give_the_run_of_one(zygote: Zygote, place: Path) -> None:
    process = torchrun([*EXACT, "run.name=two"], place=place)
    output, _ = process.communicate(timeout=280)
    assert process.returncode == 0, output
    assert output.count("majority class  test") == 1  # one process speaks
    assert zygote.run([*EXACT, "run.name=one"], directory=place) == 0
    one, two = (load_file(place / "runs" / name / "model" / "model.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        np.testing.assert_allclose(two[name], tensor, rtol=1e-5, atol=1e-6, err_msg=name)


def test_two_processes_killed_and_resumed_equal_those_left_alone(place: Path) -> None:
    words = [*TINY, "trainer.training_kwargs.per_device_train_batch_size=2"]  # with dropout
    whole = torchrun([*words, "run.name=whole"], place=place)
    output, _ = whole.communicate(timeout=280)
    assert whole.returncode == 0, output
    first = torchrun([*words, "run.name=killed"], place=place)
    checkpoints = place / "runs" / "killed" / "checkpoints"
    deadline = time.monotonic() + 200
    while not list(checkpoints.glob("step-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(json.loads((place / "runs" / "killed" / "lock.json").read_text())["pid"], signal.SIGKILL)
    first.communicate(timeout=100)  # torchrun ends the other one
    assert first.returncode != 0
    assert not (place / "runs" / "killed" / "report.json").exists()
    second = torchrun([*words, "run.name=killed"], place=place)
    output, _ = second.communicate(timeout=280)
    assert second.returncode == 0, output
    weights = [(place / "runs" / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert weights[0] == weights[1]


def test_a_mistake_is_told_once_by_two_processes(place: Path) -> None:
    process = torchrun([*TINY, "run.nam=x"], place=place)
    output, _ = process.communicate(timeout=100)
    assert process.returncode != 0
    assert output.count("run.nam='x': unknown key.") == 1


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_process_leaves_its_error_to_the_main_one_for_a_while(place: Path, seconds: int) -> None:
    code = f"""import sys; from supertrainer import main
main.MAIN_SPEAKS_SECONDS = {seconds}
print("starts", flush=True)
sys.exit(main.main([*sys.argv[1:]]))"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *TINY, "run.nam=x"],
        cwd=place,
        env={**os.environ, "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if seconds == 0:
        _, output = process.communicate(timeout=100)
        assert process.returncode == 2
        assert output.startswith("[rank 1] ")
        assert "run.nam='x': unknown key." in output
        return
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(3)
    assert process.poll() is None  # it waits to be ended
    process.terminate()
    _, output = process.communicate(timeout=5)
    assert process.returncode == -signal.SIGTERM
    assert output == ""
