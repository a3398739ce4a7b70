"""Runs on their way into the queue, and sweeps."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loopback_hub import LoopbackHub
from slurm_jobs import LONG, MAIN, Jobs, job_of, last_attempt, losses_of
from supertrainer.core.records import read_records
from supertrainer.core.run_directory import RunDirectory
from tiny_models import save_tiny
from tiny_runs import TINY

SWEEP = "trainer.training_kwargs.learning_rate=1e-3,2e-3,1e30"  # the last one's loss isn't finite
LAUNCHER = ["hydra/launcher=submitit_slurm", "hydra.launcher.partition=main", "hydra.launcher.timeout_min=5"]
TINY_WITHOUT_RATE = [word for word in TINY if "learning_rate" not in word]


@pytest.mark.core
def test_a_run_is_checked_queued_followed_and_not_sent_twice(jobs: Jobs) -> None:
    words = [*TINY, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=5", "run.name=one"]
    shown = jobs.call(*words, "--dry-run")
    assert "28: 4 epochs of 7" in shown
    assert "#SBATCH --partition=main" in shown
    assert not (jobs.place / "runs").exists()
    told = jobs.call(*words)
    run = RunDirectory(jobs.place / "runs" / "one")
    assert f"runs/one is queued as job {job_of(run)}; follow it: python scripts/submit.py status runs/one" in told
    again = json.loads(jobs.call(*words, "--json", "--no-check"))
    assert (again["state"], again["job_ids"]) == ("already queued", [job_of(run)])
    row = jobs.wait_for_end(run)
    assert (row["state"], row["job_ids"], row["step"], row["planned_steps"]) == ("finished", [job_of(run)], 28, 28)
    jobs.slurm.wait_for_state(job_of(run), "COMPLETED", seconds=120)
    assert json.loads(jobs.call(*words, "--json", "--no-check"))["state"] == "finished"
    assert jobs.call("cancel", "runs/one") == f"runs/one: job {job_of(run)} had ended (COMPLETED)\n"


@pytest.mark.core
def test_a_sweep_returns_at_once_and_a_failing_run_stays_alone(jobs: Jobs) -> None:
    started = time.monotonic()
    told = jobs.call("--multirun", *TINY_WITHOUT_RATE, SWEEP, *LAUNCHER, script=MAIN)
    seconds = time.monotonic() - started
    [sweep] = (jobs.place / "sweeps").iterdir()
    runs = [RunDirectory(jobs.place / "runs" / row["name"]) for row in read_records(sweep / "runs.jsonl").rows]
    assert len(runs) == 3
    for run in runs:
        assert f"{run.name}  {job_of(run)}  queued" in told
    assert seconds < 60  # the runs need longer, one after another
    rows = [jobs.wait_for_end(run) for run in runs]
    assert [row["state"] for row in rows] == ["finished", "finished", "failed"]
    assert "the loss of step 3 is nan" in rows[2]["error"]
    ended = [jobs.slurm.job(job_of(run)) for run in runs]
    assert [(job["JobState"], job["ExitCode"]) for job in ended] == [
        ("COMPLETED", "0:0"),
        ("COMPLETED", "0:0"),
        ("FAILED", "1:0"),
    ]
    array = {job_of(run).partition("_")[0] for run in runs}
    assert len(array) == 1
    for index, run in enumerate(runs):
        assert (run.logs / f"slurm-{array.copy().pop()}_{index}.out").is_file()
    jobs.call("status", str(sweep))
    with (sweep / "results.csv").open() as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["finished", "finished", "none"]


def test_waiting_shows_progress_and_tells_which_failed(jobs: Jobs) -> None:
    wait = ["hydra.launcher.wait=true", "hydra.launcher.poll_s=1"]
    told = jobs.call("--multirun", *TINY_WITHOUT_RATE, SWEEP, *LAUNCHER, *wait, script=MAIN, code=1)
    assert told.count("finished step 28 of 28") == 2
    assert "failed" in told
    assert "the loss of step 3 is nan" in told


def test_an_interrupted_wait_says_what_goes_on(jobs: Jobs) -> None:
    wait = ["hydra.launcher.wait=true", "hydra.launcher.poll_s=1"]
    process = jobs.start("--multirun", *LONG, "run.seed=1,2,3", *LAUNCHER, *wait, script=MAIN)
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if " running" in line:
            process.send_signal(signal.SIGINT)
            break
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130, "".join(lines) + rest
    assert "runs go on in SLURM. Stop them: python scripts/submit.py cancel sweeps/" in rest
    [sweep] = (jobs.place / "sweeps").iterdir()
    assert jobs.call("cancel", str(sweep)).count("cancelled") == 3
    assert jobs.call("cancel", str(sweep)).count("had ended (CANCELLED)") == 3


def test_nothing_is_queued_where_one_combination_is_wrong(jobs: Jobs) -> None:
    told = jobs.call("--multirun", *TINY, "trainer.global_batch_size=16,12", *LAUNCHER[:1], script=MAIN, code=2)
    assert "trainer.global_batch_size is swept and given more than once" in told
    words = [word for word in TINY if "global_batch_size" not in word]
    told = jobs.call("--multirun", *words, "trainer.global_batch_size=16,7", *LAUNCHER, script=MAIN, code=2)
    assert "trainer.global_batch_size=7" in told
    long = [*LAUNCHER, "hydra.launcher.timeout_min=100000"]
    told = jobs.call("--multirun", *words, "trainer.global_batch_size=16,8", *long, script=MAIN, code=2)
    assert "timeout_min" in told
    assert "2 days" in told or "2880" in told
    assert [path.name for path in jobs.place.iterdir()] == ["rows.csv"]
    assert jobs.slurm.run("squeue", "-h").strip() == ""


@pytest.mark.parametrize("processes", ["srun", "torchrun"])
def test_two_nodes_train_together(jobs: Jobs, processes: str) -> None:
    no_dropout = ["model.config.hidden_dropout_prob=0.0", "model.config.attention_probs_dropout_prob=0.0"]
    words = [*TINY, *no_dropout, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=5"]
    run = jobs.submit(*words, "cluster.slurm.nodes=2", f"cluster.processes={processes}", name="two")
    row = jobs.wait_for_end(run)
    assert row["state"] == "finished", jobs.log(run)
    assert row["nodes"].startswith("testbed[")
    assert last_attempt(run).processes == 2
    alone = jobs.submit(*words, name="alone")
    assert jobs.wait_for_end(alone)["state"] == "finished"
    assert losses_of(run) == pytest.approx(losses_of(alone), rel=1e-5)


def test_a_job_reads_what_was_checked_with_the_hub_off(jobs: Jobs, tmp_path: Path) -> None:
    """Meanwhile the model's main branch has moved on, in the cache too."""
    cache = tmp_path / "cache"
    words = [word for word in TINY if not word.startswith("model")]
    words += ["model=bert/hub", "model.source=someone/tiny", "cluster.slurm.partition=main", "run.name=hub"]
    with LoopbackHub() as hub:
        old = hub.add("someone/tiny", save_tiny(tmp_path / "old", seed=1))
        jobs.variables = hub.environment(cache=cache)
        told = jobs.call(*words, "cluster.slurm.additional_parameters={hold: true}")
        assert "is queued as job" in told
        new = hub.add("someone/tiny", save_tiny(tmp_path / "new", seed=2))
        fetch = "import huggingface_hub as h; print(h.snapshot_download('someone/tiny'))"
        environment = {**os.environ, **jobs.variables}
        fetched = subprocess.run([sys.executable, "-c", fetch], env=environment, capture_output=True, text=True)
        assert new in fetched.stdout
    run = RunDirectory(jobs.place / "runs" / "hub")
    assert json.loads(run.hub_json.read_text())["model"]["commit"] == old
    jobs.slurm.run("scontrol", "release", job_of(run))
    assert jobs.wait_for_end(run)["state"] == "finished", jobs.log(run)
    assert f"model someone/tiny: commit {old}" in jobs.log(run)
    assert new not in jobs.log(run)
    assert jobs.call(f"config={run.path}", script=MAIN)  # the same run, not one of another identity
