"""Jobs' states and how they are cancelled. The answers were recorded from SLURM 22.05.8, but where a test says."""

from pathlib import Path

import pytest

from supertrainer.core.errors import LaunchError
from supertrainer.launch.jobs import JobState, cancel, is_running, job_states, jobs_of_scripts, seconds_of

SQUEUE = """\
1|1|COMPLETED|None|n1|0:01|30:00|0|0|
2|2|FAILED|NonZeroExitCode|n1|0:01|30:00|768|0|
3|3|FAILED|JobLaunchFailure|n1|0:01|30:00|9|0|
5|5|PENDING|DependencyNeverSatisfied||0:00|30:00|0|0|
10|10|PENDING|PartitionTimeLimit||0:00|100-00:00:00|0|0|
18|18|PENDING|BeginTime||0:00|30:00|0|1|
17|6_1|RUNNING|None|n2|2:23|30:00|0|0|
16|6_0|CANCELLED|None|n2|2:26|30:00|15|0|
6|6_2|PENDING|JobArrayTaskLimit||0:00|30:00|0|0|
6|6_3|PENDING|JobArrayTaskLimit||0:00|30:00|0|0|
"""
UNKNOWN = "slurm_load_jobs error: Invalid job id specified\n"
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
SCONTROL = """\
JobId=17 ArrayJobId=6 ArrayTaskId=1 ArrayTaskThrottle=2 JobName=arr JobState=FAILED Reason=None Dependency=(null)
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901754 Nice=0 Account=root QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:05 TimeLimit=2-00:30:00 TimeMin=N/A
   SubmitTime=2026-11-30T15:39:08 EligibleTime=2026-11-30T15:39:08
   Partition=standard-g AllocNode:Sid=localhost:9721
   ReqNodeList=(null) ExcNodeList=n9
   NodeList=n2
   BatchHost=n2

JobId=6 ArrayJobId=6 ArrayTaskId=2-3%2 ArrayTaskThrottle=2 JobName=arr
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=PENDING Reason=JobArrayTaskLimit Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:30:00 TimeMin=N/A
   NodeList=
"""
SACCT = """\
4|4|REQUEUED|None|n1|143|20|0:0|2026-11-30T15:39:08
16|6_0|RUNNING|None|n2|146|30|0:0|2026-11-30T15:39:08
17|6_1|CANCELLED by 0|None|n2|146|30|0:0|2026-11-30T15:39:08
6|6_[2-3%2]|PENDING|JobArrayTaskLimit|None assigned|0|30|0:0|2026-11-30T15:39:08
4|4|PENDING|None|None assigned|0|20|0:0|2026-11-30T15:41:31
18|18|PREEMPTED|BeginTime|n[1-2]|59|30|0:0|2026-11-30T15:42:33
18|18|PREEMPTED|None|n[1-2]|6|30|0:0|2026-11-30T15:42:01
3|3|FAILED|None|n1|1|30|0:9|2026-11-30T15:39:08
"""


def words(states):
    return {job_id: (state.job_id, state.state) for job_id, state in states.items()}


def test_squeue_is_read(programs):
    programs.add("squeue", stdout=SQUEUE)
    states = job_states(["2", "3", "5", "10", "6_1"])
    assert states["2"] == JobState("2", "FAILED", "NonZeroExitCode", "n1", 1, 1800, 3, None, 0, "squeue")
    assert states["3"] == JobState("3", "FAILED", "JobLaunchFailure", "n1", 1, 1800, 0, 9, 0, "squeue")
    assert states["5"] == JobState("5", "PENDING", "DependencyNeverSatisfied", "", 0, 1800, None, None, 0, "squeue")
    assert states["10"].limit_seconds == 100 * 86400
    assert states["6_1"] == JobState("6_1", "RUNNING", "", "n2", 143, 1800, None, None, 0, "squeue")
    assert [call.split()[0] for call in programs.calls] == ["squeue"]  # the others were not needed
    assert [states[job].is_live for job in ("2", "5", "6_1")] == [False, True, True]


def test_a_signal_after_an_exit_code_is_read_in_the_newer_form_too(programs):
    programs.add(
        "squeue", stdout="2|2|FAILED|NonZeroExitCode|n1|0:01|30:00|3:0|0|\n7|7|FAILED|None|n1|0:01|1:00|0:9|0|\n"
    )
    states = job_states(["2", "7"])
    assert (states["2"].exit_code, states["2"].signal) == (3, None)
    assert (states["7"].exit_code, states["7"].signal) == (0, 9)


def test_the_cluster_line_of_a_federation_is_skipped(programs):
    programs.add("squeue", stdout="CLUSTER: lumi\n" + SQUEUE)
    assert words(job_states(["1"])) == {"1": ("1", "COMPLETED")}


def test_a_task_is_found_by_the_id_that_it_has_inside(programs):
    programs.add("squeue", stdout=SQUEUE)
    assert words(job_states(["17", "16"])) == {"17": ("6_1", "RUNNING"), "16": ("6_0", "CANCELLED")}


def test_an_arrays_own_id_stands_for_the_whole_while_tasks_share_it(programs):
    programs.add("squeue", stdout=SQUEUE)
    assert words(job_states(["6"])) == {"6": ("6", "PENDING")}


def test_an_arrays_own_id_is_the_last_task_once_that_has_it_alone(programs):
    programs.add("squeue", stdout="6|6_3|RUNNING|None|n2|0:27|30:00|0|0|\n16|6_0|RUNNING|None|n2|2:53|30:00|0|0|\n")
    assert words(job_states(["6"])) == {"6": ("6_3", "RUNNING")}


def test_scontrol_is_asked_for_what_squeue_does_not_know(programs):
    programs.add("squeue", stderr=UNKNOWN, code=1)
    programs.add("scontrol", stdout=SCONTROL, when="show job 6_")
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    states = job_states(["99", "6_1", "6_2"])
    assert states["6_1"] == JobState("6_1", "RUNNING", "", "n2", 5, 174600, None, None, 2, "scontrol")
    assert states["6_2"] == JobState("6_2", "PENDING", "JobArrayTaskLimit", "", 0, 1800, None, None, 0, "scontrol")
    assert set(states) == {"6_1", "6_2"}


def test_sacct_is_asked_last_and_its_newest_row_holds(programs):
    programs.add("squeue", stderr=UNKNOWN, code=1)
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    programs.add("sacct", stdout=SACCT)
    states = job_states(["4", "6_1", "6_3", "18", "3", "99"])
    assert states["4"] == JobState("4", "PENDING", "", "", 0, 1200, None, None, 1, "sacct")
    assert states["6_1"] == JobState("6_1", "CANCELLED", "", "n2", 146, 1800, 0, None, 0, "sacct")
    assert states["6_3"] == JobState("6_3", "PENDING", "JobArrayTaskLimit", "", 0, 1800, None, None, 0, "sacct")
    assert states["18"] == JobState("18", "PREEMPTED", "", "n[1-2]", 59, 1800, 0, None, 1, "sacct")
    assert states["3"] == JobState("3", "FAILED", "", "n1", 1, 1800, 0, 9, 0, "sacct")
    assert "99" not in states


def test_without_a_controller_scontrol_is_not_asked_again_and_again(programs):
    programs.add("squeue", stderr=DOWN, code=1)
    programs.add("scontrol", stderr=DOWN, code=1)
    programs.add("sacct", stdout=SACCT)
    assert words(job_states(["3", "4", "16"])) == {
        "3": ("3", "FAILED"), "4": ("4", "PENDING"), "16": ("6_0", "RUNNING"),
    }  # fmt: skip
    assert [call.split()[0] for call in programs.calls] == ["squeue", "scontrol", "sacct"]


def test_without_accounting_a_forgotten_job_is_absent(programs):
    programs.add("squeue", stderr=UNKNOWN, code=1)
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    programs.add("sacct", stderr="Slurm accounting storage is disabled\n", code=1)
    assert job_states(["99"]) == {}


def test_without_slurm_or_for_what_is_no_job_id_nothing_is_known(programs):
    assert job_states(["1"]) == {}
    programs.add("squeue", stdout=SQUEUE)
    assert job_states(["", "x; rm -rf /", "-1"]) == {}
    assert programs.calls == []


def test_many_jobs_are_one_question(programs):
    programs.add("squeue", stdout="".join(f"{n}|{n}|PENDING|Priority||0:00|1:00|0|0|\n" for n in range(1, 151)))
    assert len(job_states(str(number) for number in range(1, 151))) == 150
    assert len(programs.calls) == 1


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", True), ("COMPLETING", True), ("SUSPENDED", True), ("CONFIGURING", True), ("PENDING", False),
        ("REQUEUED", False), ("COMPLETED", False), ("PREEMPTED", False), ("NODE_FAIL", False), ("TIMEOUT", False),
    ],
)  # fmt: skip
def test_whether_processes_of_a_job_may_run(programs, state, expected):
    programs.add("sbatch")
    programs.add("squeue", stdout=f"7|7|{state}|None|n1|0:01|30:00|0|0|\n")
    assert is_running("7") is expected


def test_whether_a_job_runs_is_unknown_where_nobody_can_tell(programs):
    assert is_running("7") is None
    programs.add("sbatch")
    assert is_running("7") is None


def test_cancel_takes_tasks_alone_and_leaves_ended_jobs(programs):
    programs.add("squeue", stdout=SQUEUE)
    programs.add("scontrol", stdout="Slurmctld(primary) at vm is UP\n", when="ping")
    programs.add("scontrol", stderr=UNKNOWN, code=1)
    programs.add("scancel")
    assert cancel(["17", "6_2", "5", "1", "99"]) == {
        "17": "cancelled",
        "6_2": "cancelled",
        "5": "cancelled",
        "1": "had ended (COMPLETED)",
        "99": "unknown",
    }
    assert [call for call in programs.calls if call.startswith("scancel")] == ["scancel 6_1 6_2 5"]


def test_cancel_again_cancels_nothing(programs):
    programs.add("squeue", stdout="5|5|CANCELLED|None||0:00|30:00|0|0|\n")
    assert cancel(["5"]) == {"5": "had ended (CANCELLED)"}
    assert not any(call.startswith("scancel") for call in programs.calls)


def test_cancel_of_a_job_that_is_just_ending_is_no_error(programs):
    programs.add("squeue", stdout="5|5|COMPLETING|None|n1|0:10|30:00|0|0|\n")
    words = "scancel: error: Kill job error on job id 5: Job/step already completing or completed\n"
    programs.add("scancel", stderr=words, code=1)
    assert cancel(["5"]) == {"5": "cancelled"}


def test_cancel_says_when_it_may_not(programs):
    programs.add("squeue", stdout=SQUEUE)
    programs.add("scancel", stderr="scancel: error: Kill job error on job id 5: Access/permission denied\n", code=1)
    with pytest.raises(LaunchError, match="Kill job error on job id 5: Access/permission denied"):
        cancel(["5"])


def test_cancel_says_when_slurm_cannot_be_asked(programs):
    with pytest.raises(LaunchError, match="scontrol is not on this machine"):
        cancel(["5"])
    programs.add("scontrol", stderr=DOWN, code=1)
    with pytest.raises(LaunchError, match="Unable to contact slurm controller"):
        cancel(["5"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:05", 5), ("20:00", 1200), ("1:00:00", 3600), ("2-00:00:00", 172800), ("UNLIMITED", None), ("", None)],
)
def test_times_are_read(text, seconds):
    assert seconds_of(text) == seconds


def test_jobs_are_found_by_the_script_that_they_run(programs):
    rows = "12|/runs/a/slurm.sh|\n13|/runs/b c/slurm.sh|\n14|(null)|\n15|/runs/a/slurm.sh|\n"
    programs.add("squeue", stdout=rows)
    scripts = [Path("/runs/a/slurm.sh"), Path("/runs/b c/slurm.sh"), Path("/runs/d/slurm.sh")]
    assert jobs_of_scripts(scripts) == {scripts[0]: ["12", "15"], scripts[1]: ["13"]}
