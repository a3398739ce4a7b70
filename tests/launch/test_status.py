"""How runs are told to be while SLURM knows their jobs."""

from pathlib import Path

import pytest

from run_marks import EXPLAINED, attempt, end, slurm_says, start, state, status, submit, write
from supertrainer.core.errors import ConfigError
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.status import as_rows, expand, run_statuses, table


def test_a_run_that_was_never_started(run, programs):
    assert state(run) == ("none", "")
    assert programs.calls == []


def test_a_queued_run_with_the_reason_that_it_waits_for(run, programs):
    slurm_says(programs, "12|PENDING|Resources||0:00|1:00:00|0|0")
    write(run, jobs=[submit("12")])
    assert state(run) == ("queued", "Resources")


def test_everything_of_a_running_run(run, programs):
    slurm_says(programs, "12|RUNNING|None|n[1-2]|5:03|1:00:00|0|1")
    metrics = [{"step": 10, "loss": 2.5}, {"step": 20, "loss": 1.25, "lr": 0.1}, {"step": 20, "eval_loss": 9.0}]
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10), metrics=metrics, log="loading\n")
    found = as_rows([status(run)])[0]
    assert 0 <= found.pop("log_age_seconds") < 30
    assert found == {
        "run": str(run.path), "state": "running", "reason": "", "job_ids": ["12"], "attempts": 1, "nodes": "n[1-2]",
        "elapsed_seconds": 303, "limit_seconds": 3600, "step": 20, "planned_steps": 100, "loss": 1.25,
        "log": str(run.logs / "slurm-12.out"), "error": "",
    }  # fmt: skip


def test_a_preempted_run_without_grace_is_requeued_not_failed(run, programs):
    slurm_says(programs, "12|PENDING|BeginTime||0:00|1:00:00|0|1")
    log = "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T15:42:08 DUE TO PREEMPTION ***\n"
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10), log=log)
    assert state(run) == ("requeued", "BeginTime")
    assert status(run).error == ""


def test_a_job_that_waits_after_a_crash_shows_why(run, programs):
    slurm_says(programs, "12|PENDING|BeginTime||0:00|1:00:00|0|1")
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10, "failed", reason=EXPLAINED))
    assert (status(run).state, status(run).error) == ("requeued", EXPLAINED)


def test_the_running_job_counts_before_the_waiting_one(run, programs):
    slurm_says(programs, "12|RUNNING|None|n1|0:10|1:00:00|0|0", "13|PENDING|Dependency||0:00|1:00:00|0|0")
    write(run, jobs=[submit("12", chain=["12", "13"]), submit("13", chain=["12", "13"]), start("12", 5)])
    assert state(run) == ("running", "")
    assert status(run).job_ids == ("12", "13")


def test_what_is_left_of_a_finished_runs_chain_does_not_count(run, programs):
    slurm_says(programs, "12|COMPLETED|None|n1|0:10|1:00:00|0|0", "13|PENDING|Dependency||0:00|1:00:00|0|0")
    jobs = [submit("12", chain=["12", "13"]), submit("13", chain=["12", "13"]), start("12", 5), end("12", 50, 0)]
    write(run, jobs=jobs, attempts=attempt(1, 10, "done", step=100))
    assert state(run) == ("finished", "")


def test_a_finished_run_that_was_queued_again_is_queued(run, programs):
    slurm_says(programs, "12|COMPLETED|None|n1|0:10|1:00:00|0|0", "13|PENDING|Priority||0:00|1:00:00|0|0")
    jobs = [submit("12"), start("12", 5), end("12", 50, 0), submit("13", 60)]
    write(run, jobs=jobs, attempts=attempt(1, 10, "done", step=100))
    assert state(run) == ("queued", "Priority")


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("COMPLETED|None|n1|0:10|1:00:00|0|0", ("saved", "start it again to go on")),  # it left no report
        ("FAILED|NonZeroExitCode|n1|0:10|1:00:00|256|0", ("failed", "exit code 1")),
        ("FAILED|JobLaunchFailure|n1|0:10|1:00:00|9|0", ("failed", "signal 9")),
        ("FAILED|NonZeroExitCode|n1|0:10|1:00:00|19200|0", ("saved", "start it again to go on")),  # 75
        ("CANCELLED|None|n1|0:10|1:00:00|15|0", ("cancelled", "")),
        ("TIMEOUT|TimeLimit|n1|1:00:10|1:00:00|15|0", ("timed out", "TimeLimit")),
        ("OUT_OF_MEMORY|OutOfMemory|n1|0:10|1:00:00|125|0", ("out of memory", "OutOfMemory")),
        ("NODE_FAIL|NodeDown|n1|0:10|1:00:00|0|0", ("node failed", "NodeDown")),
        ("PREEMPTED|None|n1|0:10|1:00:00|15|0", ("cancelled", "preempted and not requeued")),
        ("DEADLINE|DeadLine||0:00|1:00:00|0|0", ("timed out", "DeadLine")),
    ],
)
def test_how_slurm_says_that_a_job_ended(run, programs, row, expected):
    slurm_says(programs, f"12|{row}")
    write(run, jobs=[submit("12"), start("12", 5)])
    assert state(run) == expected


def test_a_saved_run_says_how_to_go_on(run, programs):
    slurm_says(programs, "12|FAILED|NonZeroExitCode|n1|0:10|1:00:00|19200|0")
    run.slurm_sh.write_text("#!/bin/bash\n")
    write(run, jobs=[submit("12"), start("12", 5), end("12", 50, 75)], attempts=attempt(1, 10, "saved", step=40))
    assert state(run) == ("saved", f"sbatch {run.slurm_sh} goes on")
    assert status(run).step == 40


def test_a_job_that_was_cancelled_in_the_queue(run, programs):
    slurm_says(programs, "12|CANCELLED|None||0:00|1:00:00|0|0")
    write(run, jobs=[submit("12")])
    assert state(run) == ("cancelled", "before it started")


def test_the_error_is_what_the_program_wrote(run, programs):
    slurm_says(programs, "12|FAILED|NonZeroExitCode|n1|0:10|1:00:00|256|0")
    log = "Traceback (most recent call last):\nValueError: another\nsrun: error: n1: task 0: Exited with exit code 1\n"
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10, "failed", reason=EXPLAINED), log=log)
    assert (status(run).state, status(run).error) == ("failed", EXPLAINED)


def test_an_older_attempts_error_is_not_that_of_a_start_that_died_before(run, programs):
    slurm_says(programs, "13|FAILED|NonZeroExitCode|n1|0:10|1:00:00|32512|0")
    jobs = [submit("12"), start("12", 5), end("12", 50, 1), submit("13", 60), start("13", 65), end("13", 66, 127)]
    log = "/var/spool/slurmd/job00013/slurm_script: line 40: /opt/python3: No such file or directory\n"
    log += "srun: error: n1: task 0: Exited with exit code 2\n"
    write(run, jobs=jobs, attempts=attempt(1, 10, "failed", reason=EXPLAINED), log=log)
    assert status(run).reason == "exit code 127"
    assert status(run).error == "srun: error: n1: task 0: Exited with exit code 2"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory\nsrun: error: n1: task 1: Exited with exit code 1\n",
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory",
        ),
        (
            "ValueError: of a rank\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
            "ValueError: of a rank",
        ),
        ("step 1\nSegmentation fault (core dumped)\n", "Segmentation fault (core dumped)"),
        ("all went well\n", ""),
        ("OSError: hf_abcdefghijklmnopqrst is no token\n", "OSError: *** is no token"),
    ],
)
def test_without_an_attempt_the_error_is_read_from_the_output(run, programs, log, error):
    slurm_says(programs, "12|FAILED|NonZeroExitCode|n1|0:10|1:00:00|256|0")
    write(run, jobs=[submit("12"), start("12", 5)], log=log)
    assert status(run).error == error


@pytest.mark.parametrize(
    "words",
    [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0. Some of the step tasks have been OOM Killed.",
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.0. Some of your processes may have been killed.",
        "slurmstepd: error: StepId=12.0 exceeded memory limit (310611968 > 104857600), being killed",
    ],
)
def test_memory_that_ran_out_is_told_from_the_output_too(run, programs, words):
    slurm_says(programs, "12|FAILED|NonZeroExitCode|n1|0:10|1:00:00|35072|0")
    write(run, jobs=[submit("12"), start("12", 5)], log=f"{words}\nsrun: error: n1: task 0: Out Of Memory\n")
    assert (status(run).state, status(run).error) == ("out of memory", words)


def test_many_runs_are_one_question_to_slurm(tmp_path, programs):
    slurm_says(programs, "12|RUNNING|None|n1|0:10|1:00:00|0|0", "13|PENDING|Priority||0:00|1:00:00|0|0")
    runs = [RunDirectory(tmp_path / f"r{number}") for number in (12, 13)]
    for run, job_id in zip(runs, ("12", "13"), strict=True):
        run.logs.mkdir(parents=True)
        write(run, jobs=[submit(job_id)])
    assert [found.state for found in run_statuses(runs)] == ["running", "queued"]
    assert len(programs.calls) == 1


def test_the_table(run, programs):
    slurm_says(programs, "12|FAILED|NonZeroExitCode|n1|5:03|1-00:00:00|256|0")
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10, "failed", step=30, reason=EXPLAINED))
    head, line, error = table(run_statuses([run])).splitlines()
    assert head.split() == (
        ["run", "state", "reason", "job", "starts", "node", "elapsed", "/", "limit", "step", "loss", "log", "age"]
    )
    assert line == f"{run.path}  failed  exit code 1  12   1       n1    0:05:03 / 1-0:00:00  30/100  -     -"
    assert error == f"    {EXPLAINED}"


def test_runs_and_sweeps_are_expanded_once(tmp_path, run):
    sweep = tmp_path / "sweeps" / "lr-1234"
    sweep.mkdir(parents=True)
    (sweep / "sweep.yaml").write_text("runs:\n- name: bert-1\n  overrides: [lr=1]\n- name: bert-2\n  overrides: []\n")
    (tmp_path / "elsewhere" / "bert-2").mkdir(parents=True)
    found = [entry.path for entry in expand([run.path, sweep])]
    assert found == [run.path, tmp_path / "elsewhere" / "bert-2"]


@pytest.mark.parametrize(("name", "why"), [("nothing", "it doesn't exist."), ("logs", "it holds neither config.yaml")])
def test_what_is_no_run_is_refused(run, name, why):
    with pytest.raises(ConfigError, match=why):
        expand([Path(run.path) / name])
