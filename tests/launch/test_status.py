"""How runs are told to be: by SLURM where it answers, else by the marks in their directories."""

import json
import os
import socket
import time
from pathlib import Path

import pytest

from supertrainer.core.errors import ConfigError
from supertrainer.core.owner import this_process
from supertrainer.core.run_directory import RunDirectory
from supertrainer.launch.status import as_rows, expand, run_statuses, table

UNKNOWN = "slurm_load_jobs error: Invalid job id specified\n"
EXPLAINED = "RuntimeError: CUDA error: an illegal memory access was encountered"


def at(second):
    return f"2026-11-30T15:{second // 60:02}:{second % 60:02}+00:00"


def submit(job_id, second=0, **more):
    return {"event": "submit", "time": at(second), "job_id": job_id, "limit_seconds": 3600} | more


def start(job_id, second, restart=0):
    return {"event": "start", "time": at(second).replace("+00:00", "Z"), "job_id": job_id, "restart": restart}


def end(job_id, second, code, requeued=False):
    return {"event": "end", "time": at(second), "job_id": job_id, "restart": 0, "exit_code": code, "requeued": requeued}


def attempt(number, second, outcome=None, *, job_id="12", step=None, reason=""):
    rows = [
        {
            "event": "start", "attempt": number, "time": at(second), "command": ["main.py"], "host": "n1", "pid": 7,
            "job_id": job_id, "processes": 2, "resumed_step": None,
        },
        {"event": "plan", "attempt": number, "planned_steps": 100},
    ]  # fmt: skip
    if outcome:
        ended = {"event": "end", "attempt": number, "time": at(second + 30), "outcome": outcome}
        rows.append(ended | {"step": step, "reason": reason})
    return rows


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    run = RunDirectory(tmp_path / "runs" / "bert-1")
    run.logs.mkdir(parents=True)
    run.config_yaml.write_text("operation: train\n")
    return run


def write(run, *, jobs=(), attempts=(), metrics=(), log=None, report=None):
    for path, rows in ((run.jobs_jsonl, jobs), (run.attempts_jsonl, attempts), (run.metrics_jsonl, metrics)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if log is not None:
        (run.logs / "slurm-12.out").write_text(log)
    if report is not None:
        run.report_json.write_text(json.dumps(report))


def slurm_says(programs, *rows):
    """Rows of `ID|STATE|REASON|NODES|USED|LIMIT|STATUS|RESTARTS`, as squeue gives them."""
    programs.add("squeue", stdout="".join(f"{row.split('|')[0]}|{row}|\n" for row in rows))
    slurm_is_up(programs)


def slurm_is_up(programs):
    programs.add("squeue", stderr=UNKNOWN, code=1)
    programs.add("scontrol", stdout="Slurmctld(primary) at vm is UP\n", when="ping")
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    programs.add("sacct", stderr="Slurm accounting storage is disabled\n", code=1)


def status(run):
    [found] = run_statuses([run])
    return found


def state(run):
    found = status(run)
    return found.state, found.reason


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
        ("COMPLETED|None|n1|0:10|1:00:00|0|0", ("finished", "")),
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


FORGOTTEN = [
    ("done", [end("12", 50, 0)], attempt(1, 10, "done", step=100), "", ("finished", "")),
    ("saved", [end("12", 50, 75)], attempt(1, 10, "saved", step=40), "", ("saved", "start it again to go on")),
    ("requeued", [end("12", 50, 0, True)], attempt(1, 10, "saved"), "", ("saved", "start it again to go on")),
    ("requeued before an attempt", [end("12", 50, 0, True)], [], "", ("saved", "start it again to go on")),
    ("failed", [end("12", 50, 1)], attempt(1, 10, "failed", reason=EXPLAINED), "", ("failed", "exit code 1")),
    ("usage", [end("12", 50, 2)], [], "", ("failed", "exit code 2")),
    (
        "timeout", [], attempt(1, 10),
        "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T16:42:08 DUE TO TIME LIMIT ***\n",
        ("timed out", "by its log"),
    ),
    (
        "scancel", [], attempt(1, 10),
        "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T15:42:08 ***\n",
        ("cancelled", "by its log"),
    ),
    (
        "node", [], attempt(1, 10),
        "slurmstepd-n1: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-30T15:42:08 DUE TO NODE FAILURE ***\n",
        ("node failed", "by its log"),
    ),
    ("killed", [], attempt(1, 10), "step 3\n", ("lost", "")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "attempts", "log", "expected"), [row[1:] for row in FORGOTTEN], ids=[row[0] for row in FORGOTTEN]
)
def test_after_slurm_has_forgotten_the_directory_tells(run, programs, ends, attempts, log, expected):
    slurm_is_up(programs)
    write(run, jobs=[submit("12"), start("12", 5), *ends], attempts=attempts, log=log)
    assert state(run) == expected
    assert status(run).limit_seconds == 3600


def test_a_step_of_another_ranks_end_is_no_cancelled_job(run, programs):
    slurm_is_up(programs)
    log = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-30T15:42:08 ***\n"
    write(run, jobs=[submit("12"), start("12", 5)], attempts=attempt(1, 10), log=log)
    assert state(run) == ("lost", "")


def test_a_forgotten_job_that_never_started_was_cancelled(run, programs):
    slurm_is_up(programs)
    write(run, jobs=[submit("12")])
    assert state(run) == ("cancelled", "job 12 never started, and SLURM no longer knows it")


def test_a_job_is_not_called_over_while_slurm_cannot_be_asked(run, programs):
    write(run, jobs=[submit("12")])
    assert state(run) == ("lost", "SLURM's controller doesn't answer")


def test_a_run_outside_of_slurm(run, programs):
    write(run, attempts=attempt(1, 10, job_id=""))
    run.lock_json.write_text(json.dumps(vars(this_process())))
    assert state(run) == ("running", "outside of SLURM")
    run.lock_json.unlink()
    assert state(run) == ("lost", "")
    write(run, attempts=attempt(1, 10, "interrupted", job_id=""))
    assert state(run) == ("saved", "start it again to go on")
    write(run, attempts=attempt(1, 10, "failed", job_id="", reason=EXPLAINED))
    assert (state(run), status(run).error) == (("failed", ""), EXPLAINED)
    assert programs.calls == []


def test_a_lock_of_another_machine_counts_while_it_beats(run, programs):
    write(run, attempts=attempt(1, 10, job_id=""))
    elsewhere = vars(this_process()) | {"host": f"not-{socket.gethostname()}"}
    run.lock_json.write_text(json.dumps(elsewhere))
    assert state(run)[0] == "running"
    os.utime(run.lock_json, (time.time() - 1000, time.time() - 1000))
    assert state(run)[0] == "lost"


def test_a_later_start_here_counts_more_than_an_ended_job(run, programs):
    slurm_says(programs, "12|CANCELLED|None|n1|0:10|1:00:00|15|0")
    jobs = [submit("12"), start("12", 5)]
    write(run, jobs=jobs, attempts=[*attempt(1, 10), *attempt(2, 300, "done", job_id="", step=100)])
    assert state(run) == ("finished", "")
    write(run, jobs=jobs, attempts=[*attempt(1, 10), *attempt(2, 300, "failed", job_id="", reason=EXPLAINED)])
    assert (state(run), status(run).error) == (("failed", ""), EXPLAINED)


def test_an_earlier_start_here_counts_less_than_a_job(run, programs):
    slurm_is_up(programs)
    jobs = [submit("12", 100), start("12", 105), end("12", 110, 2)]
    write(run, jobs=jobs, attempts=attempt(1, 10, "interrupted", job_id=""))
    assert state(run) == ("failed", "exit code 2")


def test_a_report_alone_tells_that_a_run_finished(run, programs):
    write(run, report={"status": "finished"})
    assert state(run) == ("finished", "")


def test_torn_and_foreign_lines_do_no_harm(run, programs):
    slurm_is_up(programs)
    write(run, jobs=[submit("12"), start("12", 5), end("12", 50, 0)], attempts=attempt(1, 10, "done", step=100))
    run.metrics_jsonl.write_text('{"step": 7, "loss": 1.5}\n[1]\n{"step": 8, "lo')
    run.lock_json.write_text("{")
    run.report_json.write_text("[]")
    assert (status(run).state, status(run).step, status(run).loss) == ("finished", 7, 1.5)


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
