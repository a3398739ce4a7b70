"""SLURM's programs, started and answered for. The answers were recorded from SLURM 22.05.8."""

import os
from pathlib import Path

import pytest

from supertrainer.core.errors import LaunchError
from supertrainer.launch.slurm import controller_answers, has_slurm, slurm, submission_environment, submit_script


def script(tmp_path: Path, *options: str) -> Path:
    path = tmp_path / "slurm.sh"
    path.write_text("\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in options), "true"]) + "\n")
    return path


def test_a_machine_without_slurm_is_told_so(programs):
    assert not has_slurm()
    with pytest.raises(LaunchError) as caught:
        slurm("squeue")
    assert str(caught.value) == (
        "LaunchError: squeue is not on this machine.\n"
        "  Why: SLURM is asked through its own programs.\n"
        "  Fix: run this on a login node of the cluster, or load its module; cluster=local needs no SLURM."
    )


def test_a_refused_job_says_why_in_one_line(programs, tmp_path):
    programs.add(
        "sbatch",
        stderr="sbatch: error: Memory specification can not be satisfied\n"
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
        code=1,
    )
    with pytest.raises(LaunchError) as caught:
        submit_script(script(tmp_path))
    assert str(caught.value) == (
        "LaunchError: sbatch: Memory specification can not be satisfied "
        "Batch job submission failed: Requested node configuration is not available"
    )


@pytest.mark.parametrize(("answer", "job_id"), [("123\n", "123"), ("123;lumi\n", "123"), ("a notice\n123\n", "123")])
def test_the_job_id_is_read_from_sbatchs_answer(programs, tmp_path, answer, job_id):
    programs.add("sbatch", stdout=answer)
    path = script(tmp_path)
    assert submit_script(path, "2", options=["--dependency=afterany:7"]) == job_id
    assert programs.calls == [f"sbatch --parsable --dependency=afterany:7 {path} 2"]


def test_an_answer_without_a_job_id_is_an_error(programs, tmp_path):
    programs.add("sbatch", stdout="Submitted\n")
    with pytest.raises(LaunchError, match="'Submitted' where a job id was expected"):
        submit_script(script(tmp_path))


def test_a_program_that_hangs_is_given_up(programs):
    programs.add("squeue")
    (programs.directory / "squeue").write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    with pytest.raises(LaunchError, match=r"squeue did not answer within 0\.2 s"):
        slurm("squeue", timeout_seconds=0.2)


def test_display_variables_of_the_user_are_kept_from_lookups(programs, monkeypatch):
    programs.add("squeue")
    (programs.directory / "squeue").write_text(
        '#!/bin/sh\necho "$SQUEUE_FORMAT|$SLURM_TIME_FORMAT|$SLURM_CONF|$HERE|$SLURM_BITSTR_LEN"\n'
    )
    for name in ("SQUEUE_FORMAT", "SLURM_TIME_FORMAT", "SLURM_CONF", "HERE"):
        monkeypatch.setenv(name, "set")
    assert slurm("squeue") == "||set|set|0\n"  # 0: an array's tasks are listed in full


def test_variables_that_would_overrule_the_script_are_kept_from_sbatch():
    environment = {"SBATCH_PARTITION": "other", "SBATCH_TIMELIMIT": "1", "SBATCH_ACCOUNT": "mine", "HOME": "/h"}
    kept = submission_environment(environment, given={"partition", "time"})
    assert {name: kept[name] for name in kept if name in environment} == {"SBATCH_ACCOUNT": "mine", "HOME": "/h"}


def test_inside_a_job_that_jobs_own_variables_are_kept_from_sbatch():
    inside = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_NODE": "100", "SLURM_CONF": "/c", "SLURM_NTASKS": "4", "A": "b"}
    kept = submission_environment(inside, given=set())
    assert {name: kept[name] for name in kept if name in inside} == {"SLURM_CONF": "/c", "A": "b"}
    outside = {"SLURM_MEM_PER_NODE": "100"}
    assert submission_environment(outside, given=set())["SLURM_MEM_PER_NODE"] == "100"


def test_options_are_read_from_the_scripts_own_lines(programs, tmp_path, monkeypatch):
    programs.add("sbatch")
    (programs.directory / "sbatch").write_text('#!/bin/sh\necho "$SBATCH_NO_REQUEUE$SBATCH_QOS"1\n')
    monkeypatch.setenv("SBATCH_NO_REQUEUE", "7")
    monkeypatch.setenv("SBATCH_QOS", "8")
    assert submit_script(script(tmp_path, "--no-requeue", "--nodes=2")) == "81"


def test_whether_the_controller_answers(programs):
    assert not controller_answers()
    programs.add("scontrol", stdout="Slurmctld(primary) at vm is UP\n")
    assert controller_answers()
    programs.add("scontrol", when="never")
    (programs.directory / "scontrol").write_text(
        "#!/bin/sh\necho 'Slurmctld(primary) at vm is DOWN'\necho 'scontrol: error' >&2\nexit 1\n"
    )
    assert not controller_answers()
    assert os.environ["PATH"] == str(programs.directory)


def test_of_sbatchs_own_variables_only_a_sites_usual_ones_count():
    environment = {"SBATCH_ACCOUNT": "mine", "SBATCH_NO_REQUEUE": "1", "SBATCH_ARRAY_INX": "0-3", "SBATCH_WAIT": "1"}
    kept = submission_environment({**environment, "HOME": "/h"}, given=["time"])
    assert kept == {"SBATCH_ACCOUNT": "mine", "HOME": "/h", "LC_ALL": "C.UTF-8", "SLURM_BITSTR_LEN": "0"}


@pytest.mark.parametrize(
    "stderr", ["sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", ""]
)
def test_a_lost_answer_says_that_the_job_may_be_queued(programs, tmp_path, stderr):
    programs.add("sbatch", stderr=stderr, code=1 if stderr else 137)
    with pytest.raises(LaunchError) as caught:
        submit_script(script(tmp_path))
    assert "the job may be queued all the same" in str(caught.value)
    assert "submit again once `scontrol ping` answers" in str(caught.value)
