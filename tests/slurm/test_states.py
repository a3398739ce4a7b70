"""Jobs' states, cancelling, and limits, as a real SLURM has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slurm_testbed import Slurm
from supertrainer.config.cluster import ClusterConfig, SlurmConfig
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.jobs import cancel, is_running, job_states
from supertrainer.launch.limits import limit_problems
from supertrainer.launch.slurm import submit_script
from supertrainer.launch.status import run_statuses

SLEEP = "#!/bin/sh\nsleep 300\n"


def wait_for_word(slurm: Slurm, job_id: str, *words: str, seconds: float = 60) -> None:
    def is_there() -> bool:
        states = job_states([job_id])
        return job_id in states and states[job_id].state in words

    slurm.wait_for(is_there, seconds, f"job {job_id} is {' or '.join(words)}")


@pytest.mark.core
def test_jobs_that_end_wait_and_run(slurm: Slurm) -> None:
    good = slurm.sbatch("#!/bin/sh\n")
    bad = slurm.sbatch("#!/bin/sh\nexit 3\n")
    shot = slurm.sbatch("#!/bin/sh\nkill -9 $$\n")
    runs = slurm.sbatch(SLEEP, "--nodelist=testbed1", "--time=5")
    held = slurm.sbatch(SLEEP, "--hold")
    for job_id, word in ((good, "COMPLETED"), (bad, "FAILED"), (shot, "FAILED"), (runs, "RUNNING")):
        wait_for_word(slurm, job_id, word)
    states = job_states([good, bad, shot, runs, held, "999999"])
    assert [(state.state, state.exit_code, state.signal, state.is_live) for state in states.values()] == [
        ("COMPLETED", 0, None, False),
        ("FAILED", 3, None, False),
        ("FAILED", 0, 9, False),
        ("RUNNING", None, None, True),
        ("PENDING", None, None, True),
    ]
    assert (states[runs].nodes, states[runs].limit_seconds, states[held].reason) == ("testbed1", 300, "JobHeldUser")
    assert [is_running(job_id) for job_id in (good, runs, held, "999999")] == [False, True, False, None]


@pytest.mark.core
def test_one_task_of_an_array_is_cancelled_alone_and_twice_without_harm(slurm: Slurm) -> None:
    array = slurm.sbatch(SLEEP, "--array=0-3%3", "--time=5")
    tasks = [f"{array}_{number}" for number in range(4)]
    for task in tasks[:3]:
        wait_for_word(slurm, task, "RUNNING")
    assert job_states([tasks[3]])[tasks[3]].reason == "JobArrayTaskLimit"
    assert cancel([tasks[0]]) == {tasks[0]: "cancelled"}
    wait_for_word(slurm, tasks[0], "CANCELLED")
    assert cancel([tasks[0]]) == {tasks[0]: "had ended (CANCELLED)"}
    wait_for_word(slurm, tasks[3], "RUNNING")  # it has the array's own id now
    assert cancel([array, "999999"]) == {array: "cancelled", "999999": "unknown"}
    wait_for_word(slurm, tasks[3], "CANCELLED")
    assert [job_states([task])[task].state for task in tasks[1:3]] == ["RUNNING", "RUNNING"]
    assert cancel([f"{array}_1", job_states([tasks[2]])[tasks[2]].job_id]) == dict.fromkeys(tasks[1:3], "cancelled")


@pytest.mark.core
def test_a_forgotten_job_is_known_to_accounting_alone(slurm: Slurm) -> None:
    slurm.change(SLURM_MIN_JOB_AGE="2")
    job_id = slurm.sbatch("#!/bin/sh\nexit 4\n")
    slurm.wait_for(lambda: not slurm.job(job_id), 60, f"job {job_id} is forgotten")
    states = job_states([job_id])
    if slurm.has_accounting:
        found = states[job_id]
        assert (found.source, found.state, found.exit_code, found.limit_seconds) == ("sacct", "FAILED", 4, 600)
    else:
        assert states == {}


@pytest.mark.core
def test_a_run_preempted_without_grace_is_requeued_and_runs_again(slurm: Slurm, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.logs.mkdir(parents=True)
    run.slurm_sh.write_text(
        "#!/bin/bash\n#SBATCH --partition=preempt\n#SBATCH --nodelist=testbed1\n#SBATCH --exclusive\n"
        f"#SBATCH --open-mode=append\n#SBATCH --output={run.logs}/slurm-%j.out\n"
        f'printf \'{{"event":"start","time":"%s","job_id":"%s"}}\\n\' "$(date -u +%FT%TZ)" "$SLURM_JOB_ID" '
        f">> {run.jobs_jsonl}\nsleep 300\n"
    )
    job_id = submit_script(run.slurm_sh)

    def state() -> tuple[str, str]:
        [found] = run_statuses([run])
        return found.state, found.nodes

    slurm.wait_for(lambda: run.jobs_jsonl.exists() and state() == ("running", "testbed1"), 60, "the run runs")
    assert json.loads(run.jobs_jsonl.read_text())["job_id"] == job_id
    slurm.sbatch("#!/bin/sh\nsleep 3\n", "--partition=high", "--nodelist=testbed1", "--exclusive", "--time=1")
    seen = set()

    def runs_again() -> bool:
        seen.add(state()[0])
        return len(run.jobs_jsonl.read_text().splitlines()) == 2

    slurm.wait_for(runs_again, 90, "the run was started again")
    assert "requeued" in seen
    assert seen <= {"running", "requeued"}
    assert job_states([job_id])[job_id].restarts == 1
    cancel([job_id])
    slurm.wait_for(lambda: state()[0] == "cancelled", 60, "the run is cancelled")


LIMITS = [
    ("time", {"partition": "dev", "timeout_min": 31}, ["--partition=dev", "--time=31"]),
    ("time elsewhere", {"partition": "main", "timeout_min": 31}, ["--partition=main", "--time=31"]),
    ("nodes of the partition", {"partition": "dev", "nodes": 3}, ["--partition=dev", "--nodes=3"]),
    ("nodes", {"partition": "main", "nodes": 5}, ["--partition=main", "--nodes=5"]),
    ("all nodes", {"partition": "main", "nodes": 4}, ["--partition=main", "--nodes=4"]),
    ("GPUs", {"gpus_per_node": 5, "tasks_per_node": 1}, ["--gpus-per-node=5"]),
    ("all GPUs", {"gpus_per_node": 4, "tasks_per_node": 1}, ["--gpus-per-node=4"]),
    ("another GPU", {"gres": "gpu:a100:1", "tasks_per_node": 1}, ["--gres=gpu:a100:1"]),
    ("the GPU", {"gres": "gpu:fake:1", "tasks_per_node": 1}, ["--gres=gpu:fake:1"]),
    ("CPUs", {"cpus_per_task": 5}, ["--cpus-per-task=5"]),
    ("all CPUs", {"tasks_per_node": 2, "cpus_per_task": 2}, ["--ntasks-per-node=2", "--cpus-per-task=2"]),
    ("memory", {"mem_gb": 7.9}, ["--mem=8090M"]),
    ("all memory", {"mem_gb": 7.8125}, ["--mem=8000M"]),
    ("another feature", {"constraint": "intel"}, ["--constraint=intel"]),
    ("a feature of one node", {"constraint": "amd", "nodes": 2}, ["--constraint=amd", "--nodes=2"]),
    ("the feature", {"constraint": "amd"}, ["--constraint=amd"]),
    ("nodes left out", {"exclude": "testbed[1-3]", "nodes": 2}, ["--exclude=testbed[1-3]", "--nodes=2"]),
    ("another partition", {"partition": "gpu"}, ["--partition=gpu"]),
    ("time of a QoS", {"qos": "short", "timeout_min": 11}, ["--qos=short", "--time=11"]),
    ("the QoS", {"qos": "short", "timeout_min": 10}, ["--qos=short", "--time=10"]),
    ("another QoS", {"qos": "urgent"}, ["--qos=urgent"]),
    ("another account", {"account": "nobody"}, ["--account=nobody"]),
    ("two partitions", {"partition": "dev,main", "timeout_min": 99}, ["--partition=dev,main", "--time=99"]),
]


@pytest.mark.parametrize(("asked", "options"), [row[1:] for row in LIMITS], ids=[row[0] for row in LIMITS])
def test_what_is_refused_is_what_slurm_never_starts(slurm: Slurm, asked: dict[str, object], options: list[str]) -> None:
    given = {"timeout_min": 20} | asked
    options = options if any("--time" in option for option in options) else [*options, "--time=20"]
    allowed = not limit_problems(ClusterConfig(slurm=SlurmConfig(**given)))
    answer = slurm.run("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=true", check=False).strip()
    if not answer:
        assert not allowed  # sbatch itself refuses it
        return
    reasons = ("PartitionTimeLimit", "PartitionNodeLimit", "PartitionConfig", "BadConstraints")
    reasons += ("QOSMaxWallDurationPerJobLimit",)

    def decided() -> str:
        state = job_states([answer])[answer]
        if state.state == "COMPLETED":
            return "started"
        return "never" if state.reason in reasons else ""

    assert slurm.wait_for(decided, 60, f"job {answer} has started or never will") == ("started" if allowed else "never")
