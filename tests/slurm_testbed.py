"""The project's own SLURM on this machine (`make slurm-up`), as tests use it: commands, waits, and nodes that fail.

def test_a_lost_node(slurm: Slurm) -> None:
    job = slurm.sbatch("#!/bin/sh\\nsleep 60\\n", "--nodelist=testbed1")
    slurm.wait_for_state(job, "RUNNING", seconds=30)
    slurm.kill_node("testbed1")
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Value = TypeVar("Value")

ROOT = Path(os.environ.get("SUPERTRAINER_SLURM_ROOT", "/tmp/supertrainer-slurm"))
SCRIPT = Path(__file__).parents[1] / "scripts/slurm_testbed.sh"
NODES = ("testbed1", "testbed2", "testbed3", "testbed4")
CALL_SECONDS = 60


class Slurm:
    """Talks to the testbed below `root`; keeps in mind which nodes were killed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.conf = root / "slurm.conf"
        self.killed: set[str] = set()
        self.is_changed = False

    @property
    def environment(self) -> dict[str, str]:
        """The variables for a process of its own: those of this one, with the testbed's configuration, in no job."""
        kept = {name: value for name, value in os.environ.items() if not re.match("S(LURM|BATCH|RUN|ALLOC)_", name)}
        return {**kept, "SLURM_CONF": str(self.conf), "SUPERTRAINER_SLURM_ROOT": str(self.root)}

    @property
    def has_accounting(self) -> bool:
        """Whether sacct has a database."""
        return "\nAccountingStorageType=accounting_storage/slurmdbd\n" in self.conf.read_text()

    def missing(self) -> str | None:
        """Why the testbed can't be used, or None where its controller answers."""
        if not (self.root / "environment").is_file():
            return f"no SLURM testbed in {self.root}: make slurm-up starts one"
        try:
            answer = self.run("scontrol", "ping", check=False)
        except FileNotFoundError:
            return "SLURM is not installed: scripts/slurm_testbed.sh install"
        except subprocess.TimeoutExpired:
            answer = "no answer"
        return None if " is UP" in answer else f"the SLURM testbed in {self.root} does not answer: {answer.strip()}"

    def run(self, program: str, *arguments: str, check: bool = True) -> str:
        """What a program of SLURM prints; with `check` the test fails with its own words where it fails."""
        done = subprocess.run(
            [program, *arguments], env=self.environment, capture_output=True, text=True, timeout=CALL_SECONDS
        )
        if check and done.returncode != 0:
            pytest.fail(f"{program} {' '.join(arguments)} gave {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def sbatch(self, script: Path | str, *options: str) -> str:
        """Queues a script, a file or its text; gives the job id."""
        if isinstance(script, Path):
            return self.run("sbatch", "--parsable", *options, str(script)).strip()
        done = subprocess.run(
            ["sbatch", "--parsable", f"--output={self.root}/log/job-%j.out", *options],
            input=script, env=self.environment, capture_output=True, text=True, timeout=CALL_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of `scontrol show job`, such as JobState, Restarts, NodeList; {} where the job is unknown."""
        text = self.run("scontrol", "--oneliner", "show", "job", job_id, check=False)
        return dict(re.findall(r"(\w+)=(\S*)", text))

    def wait_for(self, predicate: Callable[[], Value], seconds: float, what: str) -> Value:
        """The first true value of `predicate`, asked twice a second; else the test fails and shows what SLURM saw."""
        deadline = time.monotonic() + seconds
        while not (value := predicate()):
            if time.monotonic() > deadline:
                pytest.fail(f"not in {seconds:g} seconds: {what}\n{self.report()}")
            time.sleep(0.5)
        return value

    def wait_for_state(self, job_id: str, *states: str, seconds: float) -> dict[str, str]:
        """Waits until a job is in one of the states; gives its fields."""
        return self.wait_for(
            lambda: (job := self.job(job_id)).get("JobState") in states and job,
            seconds, f"job {job_id} is {' or '.join(states)}",
        )  # fmt: skip

    def report(self) -> str:
        """Queue, nodes and the controller's last words."""
        log = (self.root / "log/slurmctld").read_text(errors="replace").splitlines()
        queue = self.run("squeue", "--all", "--states=all", "--format=%i %P %T %r %M %N %j", check=False).splitlines()
        return "\n".join([*queue[:1], *queue[-20:], self.run("sinfo", "-N", "-l", check=False), *log[-40:]])

    def kill_node(self, name: str) -> None:
        """As when a node loses power: its daemon and every process of jobs there end by SIGKILL.

        The controller sees it after 15 to 30 seconds, requeues the jobs, and starts them on what is left.
        """
        self.killed.add(name)
        self._script("kill", name)

    def revive_node(self, name: str) -> None:
        """Starts the node's daemon again and waits until the node takes jobs."""
        self._script("revive", name)
        self.killed.discard(name)

    def change(self, **settings: str) -> None:
        """Other settings of scripts/slurm_testbed.sh until the end of the test; jobs go on, accounting stays as it is.

        `change(SLURM_MIN_JOB_AGE="5")` makes squeue and scontrol forget an ended job within seconds.
        """
        self.is_changed = bool(settings)
        self._script("up", SLURM_ACCOUNTING=str(int(self.has_accounting)), **settings)

    def clean(self) -> None:
        """Undoes `kill_node` and `change`, and cancels every job, so that the next test finds all nodes idle."""
        for name in sorted(self.killed):
            self.revive_node(name)
        if self.is_changed:
            self.change()
        jobs = sorted(set(self.run("squeue", "-h", "-r", "-o", "%i").split()))  # raw ids of tasks are refused
        if jobs:
            self.run("scancel", *jobs, check=False)
            self.wait_for(lambda: not self.run("squeue", "-h").strip(), 60, "every job of the test has ended")

    def _script(self, *words: str, **variables: str) -> None:
        environment = {**self.environment, **variables}
        done = subprocess.run([SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
