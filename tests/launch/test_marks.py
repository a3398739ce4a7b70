"""How runs are told to be by the marks in their directories: outside of SLURM, and after it has forgotten."""

import json
import os
import socket
import time

import pytest

from run_marks import EXPLAINED, attempt, end, slurm_is_up, slurm_says, start, state, status, submit, write
from supertrainer.core.owner import this_process

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
