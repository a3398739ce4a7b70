"""What the other tests here rely on: the testbed preempts, requeues, loses nodes and ends jobs as a cluster does."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_testbed import NODES, Slurm

# Notes each start with its restart count, and the signal that it gets.
SCRIPT = """#!/bin/bash
trap 'echo signal' USR1
trap 'echo term' TERM
echo "start ${SLURM_RESTART_COUNT:-0} on $SLURM_JOB_NODELIST"
for _ in $(seq 300); do sleep 0.2; done
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.out"


def submit(slurm: Slurm, log: Path, *options: str) -> str:
    job = slurm.sbatch(SCRIPT, f"--output={log}", "--open-mode=append", "--time=5", *options)
    slurm.wait_for(lambda: log.exists() and "start 0" in log.read_text(), 30, f"job {job} has started")
    return job


@pytest.mark.core
def test_a_job_sees_its_node_and_gpus(slurm: Slurm, log: Path) -> None:
    words = "#!/bin/sh\necho $SLURM_JOB_NODELIST $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES\n"
    job = slurm.sbatch(words, f"--output={log}", "--nodelist=testbed4", "--gpus-per-node=2")
    slurm.wait_for_state(job, "COMPLETED", seconds=30)
    assert log.read_text() == "testbed4 0,1\n"


@pytest.mark.core
def test_without_grace_a_preempted_job_starts_again_under_its_id(slurm: Slurm, log: Path) -> None:
    job = submit(slurm, log, "--partition=preempt", "--nodelist=testbed1", "--exclusive")
    slurm.sbatch("#!/bin/sh\nsleep 3\n", "--partition=high", "--nodelist=testbed1", "--exclusive", "--time=1")
    slurm.wait_for(lambda: "start 1" in log.read_text(), 60, f"job {job} has started again")
    assert slurm.job(job)["Restarts"] == "1"


def test_with_grace_a_preempted_job_is_told_by_its_signal(slurm: Slurm, log: Path) -> None:
    job = submit(slurm, log, "--partition=preempt_grace", "--nodelist=testbed1", "--exclusive", "--signal=B:USR1@60")
    slurm.sbatch("#!/bin/sh\nsleep 3\n", "--partition=high", "--nodelist=testbed1", "--exclusive", "--time=1")
    slurm.wait_for(lambda: "signal" in log.read_text(), 30, f"job {job} got its signal")
    assert slurm.job(job)["JobState"] == "RUNNING"


@pytest.mark.slow
def test_the_job_of_a_lost_node_starts_again_on_others(slurm: Slurm, log: Path) -> None:
    submit(slurm, log, "--nodes=2")
    slurm.kill_node("testbed1")
    slurm.wait_for(lambda: "start 1" in log.read_text(), 90, "the job has started again")
    assert log.read_text().splitlines() == ["start 0 on testbed[1-2]", "start 1 on testbed[2-3]"]


@pytest.mark.slow
def test_a_step_over_its_memory_is_killed(slurm: Slurm, log: Path) -> None:
    """Without cgroups the job itself is then FAILED by its script's exit code; with them it is OUT_OF_MEMORY."""
    python = "import time; x = bytearray(300_000_000); x[::4096] = x[::4096]; time.sleep(60)"
    job = slurm.sbatch(f"#!/bin/sh\nsrun python3 -c '{python}'\n", f"--output={log}", "--mem=100")
    assert slurm.wait_for_state(job, "FAILED", "COMPLETED", seconds=60)["ExitCode"] == "137:0"
    assert "exceeded memory limit" in log.read_text()


def test_an_ended_job_is_forgotten_after_the_age_that_was_set(slurm: Slurm, log: Path) -> None:
    slurm.change(SLURM_MIN_JOB_AGE="2")
    job = slurm.sbatch("#!/bin/sh\n", f"--output={log}")
    slurm.wait_for(lambda: not slurm.job(job), 30, f"job {job} is forgotten")
    assert job not in slurm.run("squeue", "--all", "--states=all", "-h", "-o", "%A").split()


def test_every_node_is_up_and_idle_between_tests(slurm: Slurm) -> None:
    states = dict(line.split() for line in slurm.run("sinfo", "-h", "-N", "-p", "main", "-o", "%N %T").splitlines())
    assert states == dict.fromkeys(NODES, "idle")
