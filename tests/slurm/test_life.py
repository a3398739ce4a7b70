"""The life of a job: whatever ends it, the run goes on to the same result, or is FAILED with its reason."""

from __future__ import annotations

import pytest

from slurm_jobs import LONG, MAIN, Jobs, job_of, last_attempt, last_step, outcomes, same_result
from supertrainer.core.attempts import read_attempts
from supertrainer.core.run_directory import RunDirectory
from tiny_runs import TINY

TAKES_ALL_NODES = "#!/bin/sh\nsleep 15\n"


def preempted(jobs: Jobs, *, partition: str) -> tuple[RunDirectory, set[str]]:
    """A run that lost its nodes to another job while it trained, and every state that it was told to be in."""
    run = jobs.submit(*LONG, f"cluster.slurm.partition={partition}", "cluster.slurm.timeout_min=10")
    jobs.wait_for_step(run, 120)
    jobs.slurm.sbatch(TAKES_ALL_NODES, "--partition=high", "--nodes=4", "--exclusive", "--time=2")
    seen = set()

    def ended() -> bool:
        seen.add(jobs.status(run)["state"])
        return not seen.isdisjoint({"finished", "failed", "cancelled", "timed out", "lost", "saved"})

    jobs.slurm.wait_for(ended, 500, f"the run goes on after its preemption\n{jobs.log(run)}")
    return run, seen


def test_preempted_with_grace_it_saves_and_goes_on(jobs: Jobs, undisturbed: RunDirectory) -> None:
    run, seen = preempted(jobs, partition="preempt_grace")
    assert seen <= {"running", "requeued", "queued", "finished"}, jobs.log(run)
    first, second = read_attempts(run)
    assert (first.outcome, second.outcome) == ("saved", "done")
    assert second.resumed_step == first.step
    same_result(run, undisturbed)


@pytest.mark.core
def test_preempted_without_grace_it_goes_on(jobs: Jobs, undisturbed: RunDirectory) -> None:
    run, seen = preempted(jobs, partition="preempt")
    assert seen <= {"running", "requeued", "queued", "finished"}, jobs.log(run)
    assert len(read_attempts(run)) == 2
    assert last_attempt(run).resumed_step is not None
    same_result(run, undisturbed)


def test_a_node_that_dies_costs_the_steps_since_the_last_checkpoint(jobs: Jobs, undisturbed: RunDirectory) -> None:
    run = jobs.submit(*LONG, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10")
    jobs.wait_for_step(run, 120)
    jobs.slurm.kill_node(jobs.slurm.job(job_of(run))["NodeList"])
    row = jobs.wait_for_end(run)
    assert row["state"] == "finished", jobs.log(run)
    assert outcomes(run) == ["killed", "done"]
    same_result(run, undisturbed)


@pytest.mark.slow
def test_the_time_limit_saves_and_the_next_start_goes_on(jobs: Jobs) -> None:
    long = [word for word in LONG if "num_train_epochs" not in word]
    long.append("trainer.training_kwargs.num_train_epochs=600")
    limit = ["cluster.slurm.timeout_min=2", "cluster.slurm.signal_delay_s=60", "cluster.slurm.partition=main"]
    run = jobs.submit(*long, *limit)
    reference = jobs.start(*long, "run.name=undisturbed", script=MAIN)
    row = jobs.wait_for_end(run, seconds=600)
    assert row["state"] == "finished", jobs.log(run)
    assert set(outcomes(run)[:-1]) == {"saved"}
    assert read_attempts(run)[0].reason == "SIGUSR1"
    reference.communicate(timeout=500)
    assert reference.returncode == 0
    same_result(run, RunDirectory(run.path.with_name("undisturbed")))


@pytest.mark.parametrize("processes", ["srun", "torchrun"])
def test_processes_on_two_nodes_agree_on_the_step_that_they_save(jobs: Jobs, processes: str) -> None:
    cluster = ["cluster.slurm.partition=main", "cluster.slurm.nodes=2", "cluster.slurm.timeout_min=10"]
    run = jobs.submit(*LONG, *cluster, f"cluster.processes={processes}")
    jobs.wait_for_step(run, 60)
    jobs.slurm.run("scancel", "--signal=USR1", job_of(run))
    row = jobs.wait_for_end(run)
    assert row["state"] == "finished", jobs.log(run)
    first, second = read_attempts(run)
    assert (first.outcome, first.processes, second.outcome) == ("saved", 2, "done")
    assert second.resumed_step == first.step


def test_a_second_job_of_a_live_run_is_refused(jobs: Jobs) -> None:
    long = [word for word in LONG if "num_train_epochs" not in word]
    long.append("trainer.training_kwargs.num_train_epochs=2000")  # it must outlive the imports of the second
    run = jobs.submit(*long, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10")
    jobs.wait_for_step(run, 20)
    second = jobs.slurm.sbatch(run.slurm_sh)
    ended = jobs.slurm.wait_for_state(second, "FAILED", "COMPLETED", seconds=240)
    assert ended["JobState"] == "FAILED"
    assert "is in use by process" in (run.logs / f"slurm-{second}.out").read_text()
    assert jobs.status(run)["state"] == "running"
    told = jobs.call("cancel", str(run.path))
    assert f"job {job_of(run)} cancelled" in told
    assert f"job {second} had ended (FAILED)" in told


def test_a_cancelled_run_stays_so_until_somebody_starts_it_again(jobs: Jobs, undisturbed: RunDirectory) -> None:
    run = jobs.submit(*LONG, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10")
    jobs.wait_for_step(run, 120)
    assert f"job {job_of(run)} cancelled" in jobs.call("cancel", str(run.path))
    row = jobs.wait_for_end(run)
    assert row["state"] == "cancelled", jobs.log(run)
    assert f"job {job_of(run)} had ended (CANCELLED)" in jobs.call("cancel", str(run.path))
    jobs.slurm.wait_for_state(job_of(run), "CANCELLED", seconds=120)
    assert last_step(run) < 1050
    again = jobs.slurm.sbatch(run.slurm_sh)
    jobs.slurm.wait_for_state(again, "COMPLETED", seconds=400)
    assert jobs.status(run)["state"] == "finished"
    same_result(run, undisturbed)


def test_a_process_that_is_killed_fails_the_job_with_its_reason(jobs: Jobs) -> None:
    """As the kernel does where memory runs out."""
    run = jobs.submit(*LONG, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10")
    jobs.wait_for_step(run, 20)
    jobs.slurm.run("scancel", "--signal=KILL", f"{job_of(run)}.0")
    row = jobs.wait_for_end(run)
    assert row["state"] == "failed"
    assert "137" in row["reason"] or "137" in row["error"] or "signal" in row["reason"], row
    assert jobs.slurm.wait_for_state(job_of(run), "FAILED", seconds=120)["ExitCode"] == "137:0"


def test_a_crash_that_is_restarted_stops_after_as_many_attempts_as_allowed(jobs: Jobs) -> None:
    restart = ["cluster.restart_on_failure=true", "cluster.max_attempts_without_progress=2"]
    words = [*TINY, "trainer.training_kwargs.learning_rate=1e30", "cluster.slurm.partition=main"]
    run = jobs.submit(*words, *restart, "cluster.slurm.timeout_min=5")
    row = jobs.wait_for_end(run)
    assert row["state"] == "failed", jobs.log(run)
    assert outcomes(run) == ["failed", "failed"]
    assert "the loss of step 3 is nan" in row["error"]
    assert jobs.slurm.wait_for_state(job_of(run), "FAILED", seconds=120)["Restarts"] == "1"


def test_where_a_requeue_is_refused_the_job_ends_with_75_and_says_how_to_go_on(
    jobs: Jobs, undisturbed: RunDirectory
) -> None:
    run = jobs.submit(*LONG, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10")
    jobs.slurm.run("scontrol", "update", f"job={job_of(run)}", "requeue=0")
    jobs.wait_for_step(run, 120)
    jobs.slurm.run("scancel", "--signal=USR1", job_of(run))
    ended = jobs.slurm.wait_for_state(job_of(run), "FAILED", "COMPLETED", seconds=240)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "75:0")
    assert f"To go on: sbatch {run.slurm_sh}" in jobs.log(run)
    assert jobs.status(run)["state"] == "saved"
    again = jobs.slurm.sbatch(run.slurm_sh)
    jobs.slurm.wait_for_state(again, "COMPLETED", seconds=400)
    same_result(run, undisturbed)


def test_a_chain_goes_on_in_its_next_job(jobs: Jobs, undisturbed: RunDirectory) -> None:
    run = jobs.submit(*LONG, "cluster.slurm.partition=main", "cluster.slurm.timeout_min=10", "cluster.chain=2")
    first, second = jobs.status(run)["job_ids"]
    jobs.wait_for_step(run, 120)
    jobs.slurm.run("scancel", "--signal=USR1", first)
    jobs.slurm.wait_for_state(first, "COMPLETED", seconds=240)
    jobs.slurm.wait_for_state(second, "COMPLETED", seconds=600)
    assert outcomes(run) == ["saved", "done"]
    assert [attempt.job_id for attempt in read_attempts(run)] == [first, second]
    same_result(run, undisturbed)
