"""Tiny real runs as jobs of the testbed: submitted, watched, and compared with a run that nothing disturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slurm_testbed import Slurm
from supertrainer.core.attempts import Attempt, read_attempts
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory
from tiny_runs import TINY

ROOT = Path(__file__).parents[1]
SUBMIT = ROOT / "scripts" / "submit.py"
MAIN = ROOT / "src" / "supertrainer" / "main.py"
LONG = [*TINY, "trainer.training_kwargs.num_train_epochs=150", "trainer.training_kwargs.save_steps=50"]


class Jobs:
    """Runs in one directory as jobs."""

    def __init__(self, slurm: Slurm, place: Path) -> None:
        self.slurm = slurm
        self.place = place
        self.variables: dict[str, str] = {}  # further ones, for commands and the jobs that they queue

    def start(self, *words: str, script: Path = SUBMIT) -> subprocess.Popen[str]:
        """One of the project's commands."""
        environment = {**self.slurm.environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        environment |= self.variables
        return subprocess.Popen(
            [sys.executable, str(script), *words], cwd=self.place, env=environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def call(self, *words: str, script: Path = SUBMIT, code: int = 0) -> str:
        """What one of the project's commands prints; the test fails where its exit code is another one."""
        process = self.start(*words, script=script)
        out, errors = process.communicate(timeout=500)
        assert process.returncode == code, f"{process.returncode}\n{out}\n{errors}"
        return out + errors

    def submit(self, *words: str, name: str = "run") -> RunDirectory:
        """Sends a run; its checks are those of other tests."""
        told = json.loads(self.call(*words, f"run.name={name}", "--no-check", "--json"))
        assert told["state"] == "queued", told
        return RunDirectory(Path(told["directory"]))

    def status(self, run: RunDirectory) -> dict[str, Any]:
        [row] = json.loads(self.call("status", str(run.path), "--json"))
        return dict(row)

    def wait_for_end(self, run: RunDirectory, *, seconds: float = 500) -> dict[str, Any]:
        """The status of a run that is no longer queued or running."""
        return self.slurm.wait_for(lambda: self._ended(run), seconds, f"{run.name} has ended\n{self.log(run)}")

    def wait_for_step(self, run: RunDirectory, step: int, *, seconds: float = 300) -> None:
        self.slurm.wait_for(lambda: last_step(run) >= step, seconds, f"{run.name} is at step {step}\n{self.log(run)}")

    def log(self, run: RunDirectory) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(run.logs.glob("slurm-*.out")))

    def _ended(self, run: RunDirectory) -> dict[str, Any] | None:
        row = self.status(run)
        return None if row["state"] in ("queued", "running", "requeued") else row


def last_step(run: RunDirectory) -> int:
    return max((row["step"] for row in read_records(run.metrics_jsonl).rows), default=0)


def outcomes(run: RunDirectory) -> list[str]:
    return [attempt.outcome for attempt in read_attempts(run)]


def job_of(run: RunDirectory) -> str:
    """The newest job of a run."""
    return str([row for row in read_records(run.jobs_jsonl).rows if row["event"] == "submit"][-1]["job_id"])


def last_attempt(run: RunDirectory) -> Attempt:
    return read_attempts(run)[-1]


def same_result(run: RunDirectory, undisturbed: RunDirectory) -> None:
    """Bitwise the weights, and every logged loss."""
    weights = [each.model / "model.safetensors" for each in (run, undisturbed)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    losses = [losses_of(each) for each in (run, undisturbed)]
    assert losses[0] == losses[1]


def losses_of(run: RunDirectory) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in read_records(run.metrics_jsonl).rows if "loss" in row}


def words_of(words: Sequence[str], **slurm: object) -> list[str]:
    """Overrides with SLURM's parameters."""
    return [*words, *(f"cluster.slurm.{key}={value}" for key, value in slurm.items())]
