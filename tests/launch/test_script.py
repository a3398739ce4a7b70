"""slurm.sh and array.sh: one golden file per preset, safe for any value, and right in every way that a job can end.

`python tests/launch/test_script.py` writes the golden files anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from supertrainer import __version__
from supertrainer.config.cluster import ClusterConfig
from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.validate import validate
from supertrainer.launch.script import Job, render_array, render_script, script_problems
from supertrainer.launch.script_directives import directive, log_pattern

GOLDEN = Path(__file__).parent / "golden"
SCRIPTS = {
    "local": (),
    "lumi": ("cluster.slurm.account=project_1", "cluster.container.image=/images/torch.sif", "cluster.slurm.nodes=2"),
    "nvidia_infiniband": ("cluster.chain=3", "cluster.slurm.partition=gpu"),
    "nvidia_slingshot": ("cluster.processes=torchrun", "cluster.slurm.nodes=2", "cluster.slurm.cpus_per_task=16"),
    "nvidia_pyxis": ('cluster.container.image="nvcr.io#nvidia/pytorch:25.01-py3"', "cluster.restart_on_failure=true"),
}
NASTY = "a b 'c' \"d\" $HOME `id` $(id) \\ # % & ; é"


def of_preset(name: str) -> ClusterConfig:
    words = ("+experiment=train_bert", f"cluster={name}", *SCRIPTS[name])
    composed = compose_command(Command(overrides=words), environment={}, groups=read_groups())
    return validate(composed, environment={}).cluster


def cluster_of(**keys: Any) -> ClusterConfig:
    return ClusterConfig.model_validate_json(json.dumps(keys))


def job_of(cluster: ClusterConfig | None = None, **keys: Any) -> Job:
    return Job(
        **{
            "run": Path("/runs/train_bert-1234abcd"),
            "name": "train_bert-1234abcd",
            "cluster": cluster or ClusterConfig(),
            "code": Path("/runs/.code/0123456789abcdef"),
            "python": "/venv/bin/python",
            "working_directory": Path("/home/me/project"),
            "words": ("allow_targets=[mine]",),
            "offline": True,
            **keys,
        }
    )


def golden_texts() -> dict[str, str]:
    texts = {name: render_script(job_of(of_preset(name))) for name in SCRIPTS}
    jobs = [job_of(run=Path(f"/runs/seeds-{index}")) for index in range(3)]
    texts["array"] = render_array(jobs, directory=Path("/sweeps/seeds"))
    return {name: text.replace(f"supertrainer {__version__}.", "supertrainer VERSION.") for name, text in texts.items()}


@pytest.mark.parametrize("name", [*SCRIPTS, "array"])
def test_a_script_is_the_golden_one(name: str) -> None:
    assert golden_texts()[name] == (GOLDEN / f"{name}.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*SCRIPTS, "array"])
def test_a_golden_script_is_right_shell(name: str) -> None:
    subprocess.run(["bash", "-n", GOLDEN / f"{name}.sh"], check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    found = subprocess.run([shellcheck, GOLDEN / f"{name}.sh"])
    assert found.returncode == 0


def directives(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#SBATCH")]


def test_a_directive_is_quoted_for_slurms_own_parser() -> None:
    assert directive("partition", "gpu,long") == "#SBATCH --partition=gpu,long"
    assert directive("comment", "a b") == '#SBATCH --comment="a b"'
    assert directive("comment", 'it\'s "#1" \\ $HOME') == '#SBATCH --comment="it\'s \\"#1\\" \\\\ $HOME"'
    assert directive("exclusive", why="alone") == "#SBATCH --exclusive  # alone"
    assert log_pattern(Path("/a/100%j"), "slurm-%j.out") == "/a/100%%j/slurm-%j.out"


def test_what_is_asked_of_slurm_stands_in_the_script() -> None:
    text = render_script(
        job_of(
            cluster_of(
                slurm={
                    "partition": "gpu",
                    "qos": "high",
                    "job_name": "my job",
                    "mail_type": "END",
                    "exclusive": True,
                    "nodes": 2,
                    "gpus_per_task": 2,
                    "tasks_per_node": 2,
                    "mem_gb": 1.5,
                    "timeout_min": 30,
                    "signal_delay_s": 90,
                    "additional_parameters": {"licenses": "a:1", "spread_job": True, "bell": False, "nice": None},
                }
            )
        )
    )
    assert [line.partition("  # ")[0].removeprefix("#SBATCH --") for line in directives(text)] == [
        'job-name="my job"',
        "chdir=/home/me/project",
        "output=/runs/train_bert-1234abcd/logs/slurm-%j.out",
        "open-mode=append",
        "nodes=2",
        "ntasks-per-node=2",
        "gpus-per-node=4",
        "mem=1536M",
        "time=30",
        "partition=gpu",
        "qos=high",
        "mail-type=END",
        "exclusive",
        "licenses=a:1",
        "spread-job",
        "signal=USR1@90",
        "requeue",
    ]


def test_torchrun_has_one_task_with_the_cpus_of_all_its_processes() -> None:
    text = render_script(job_of(cluster_of(processes="torchrun", slurm={"gpus_per_node": 4, "cpus_per_task": 6})))
    assert "#SBATCH --ntasks-per-node=1  # one torchrun, which starts 4\n#SBATCH --cpus-per-task=24" in text
    assert "--nnodes=1 --nproc-per-node=4" in text


def test_no_array_over_unequal_resources() -> None:
    jobs = [job_of(), job_of(cluster_of(slurm={"nodes": 2}))]
    with pytest.raises(AssertionError, match="one set of resources"):
        render_array(jobs, directory=Path("/sweeps/x"))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"run": Path("/runs/a\nb")}, "the run directory '/runs/a\\nb' holds a line break."),
        ({"run": Path("/runs/a\\b")}, "the run directory '/runs/a\\\\b' holds a backslash."),
        ({"run": Path("runs/a")}, "the run directory 'runs/a' is relative."),
        ({"code": Path("/a:b")}, "the code's copy '/a:b' holds a colon."),
        ({"name": "a\nb"}, "'a\\nb' holds what no script can."),
        (
            {"run": Path("/r,1"), "cluster": cluster_of(container={"name": "pyxis", "image": "x"})},
            "the run directory '/r,1' holds a comma or a colon.",
        ),
    ],
)
def test_what_no_script_can_hold_is_said(keys: Any, problem: str) -> None:
    assert [found.what for found in script_problems(job_of(**keys))] == [problem]
    assert script_problems(job_of()) == []


PROGRAMS = {
    "srun": 'while [ "$1" != sh ]; do echo "$1" >> "$HOME/srun"; shift; done\nexec "$@"',
    "scontrol": 'case "$1 $2" in\n'
    '"show hostnames") echo n1; echo n2;;\n'
    '"show job") echo "JobId=$3 JobName=JobState=X"; echo "   JobState=$(cat "$HOME/state") Reason=None";;\n'
    'requeue*) echo "$2" >> "$HOME/requeued"; cat "$HOME/after" > "$HOME/state"; exit "$(cat "$HOME/refused")";;\n'
    "esac",
    "singularity": 'printf "%s\\0" "$@" > "$HOME/singularity"\nwhile [ "$1" != python3 ]; do shift; done\nexec "$@"',
}
MAIN = """
import json, os, sys
from pathlib import Path
home = Path(os.environ["HOME"])
(home / "seen.json").write_text(json.dumps({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}))
run = Path(sys.argv[1].removeprefix("config="))
if os.environ.get("SAVES"):
    (run / f"requeue-{os.environ['SUPERTRAINER_JOB']}.json").write_text("{}")
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Machine:
    """A directory with stand-ins for SLURM's programs, in which a script runs as a job would."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.run = root / "runs" / name
        self.code = root / "code"
        for path in (self.run / "logs", self.code / "supertrainer", root / "bin"):
            path.mkdir(parents=True)
        (self.code / "supertrainer" / "main.py").write_text(MAIN)
        for program, body in PROGRAMS.items():
            path = root / "bin" / program
            path.write_text(f"#!/bin/bash\n{body}\n")
            path.chmod(0o755)
        self.says(state="RUNNING", refused="0", after="PENDING")

    def says(self, **answers: str) -> None:
        for name, answer in answers.items():
            (self.root / name).write_text(answer)

    def start(self, cluster: ClusterConfig, *arguments: str, words: tuple[str, ...] = (), **environment: str) -> Any:
        job = job_of(
            cluster, run=self.run, code=self.code, python=sys.executable, working_directory=self.root, words=words
        )
        script = self.run / "slurm.sh"
        script.write_text(render_script(job))
        slurm = {
            "SLURM_JOB_ID": "12",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_CPUS_ON_NODE": "4",
            "HOME": str(self.root),
        }
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", script, *arguments], capture_output=True, text=True, env={"PATH": path, **slurm, **environment}
        )

    @property
    def seen(self) -> Any:
        return json.loads((self.root / "seen.json").read_text())

    @property
    def records(self) -> list[tuple[Any, ...]]:
        rows = [json.loads(line) for line in (self.run / "jobs.jsonl").read_text().splitlines()]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", row["time"]) for row in rows)
        return [
            (row["event"], row["job_id"], row["restart"], row.get("exit_code"), row.get("requeued")) for row in rows
        ]

    @property
    def requeued(self) -> list[str]:
        path = self.root / "requeued"
        return path.read_text().split() if path.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "run")


def test_any_value_reaches_the_program_as_it_is(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "it's $HOME", "a b'\"$x`y`#%j")
    text = f"{NASTY}\nsecond line"
    cluster = cluster_of(
        site={
            "environment": {
                "NASTY": {"value": text, "why": "two\nlines"},
                "EXPANDED": {"value": '"$SLURM_JOB_ID" $(id) `id` \\ ${SLURM_JOB_ID}', "expand": True},
                "HF_TOKEN": "${secret:MY_TOKEN}",
            },
            "setup": [{"value": "SET='by setup'; export SET", "why": NASTY}],
        }
    )
    ended = machine.start(cluster, words=(text,), MY_TOKEN="of the environment")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert machine.seen["argv"] == [f"config={machine.run}", text]
    assert machine.seen["cwd"] == str(machine.root)
    environment = machine.seen["env"]
    assert environment["NASTY"] == text
    assert environment["EXPANDED"] == '"12" $(id) `id` \\ 12'
    assert environment["HF_TOKEN"] == "of the environment"
    assert environment["SET"] == "by setup"
    assert "of the environment" not in (machine.run / "slurm.sh").read_text()


def test_processes_find_each_other_and_nothing_of_another_run(machine: Machine) -> None:
    machine.start(
        ClusterConfig(), RANK="3", WORLD_SIZE="8", CUDA_VISIBLE_DEVICES="5", SLURM_JOB_ID="40007", PYTHONPATH="/mine"
    )
    environment = machine.seen["env"]
    assert (environment["MASTER_ADDR"], environment["MASTER_PORT"]) == ("n1", "20007")
    assert environment["PYTHONPATH"] == f"{machine.code}:/mine"
    assert environment["SUPERTRAINER_JOB"] == "40007"
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert environment["OMP_NUM_THREADS"] == "4"
    assert not {"RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES"} & environment.keys()
    assert (machine.root / "srun").read_text().split() == [
        "--kill-on-bad-exit=1",
        "--export=ALL",
        "--nodes=1",
        "--ntasks=1",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
    ]


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_a_script_ends_with_the_runs_exit_code(machine: Machine, code: int) -> None:
    (machine.run / "requeue-12.json").write_text("{}")  # of an earlier start
    (machine.run / "requeue-11.json").write_text("{}")  # of another job
    assert machine.start(ClusterConfig(), CODE=str(code)).returncode == code
    assert machine.records == [("start", "12", 0, None, None), ("end", "12", 0, code, False)]
    assert machine.requeued == []


def test_a_saved_run_is_requeued(machine: Machine) -> None:
    assert machine.start(ClusterConfig(), SAVES="1", SLURM_RESTART_COUNT="2").returncode == 0
    assert machine.records == [("start", "12", 2, None, None), ("end", "12", 2, 0, True)]
    assert machine.requeued == ["12"]


def test_a_task_of_an_array_is_requeued_alone(machine: Machine) -> None:
    machine.start(ClusterConfig(), SAVES="1", SLURM_ARRAY_JOB_ID="12", SLURM_ARRAY_TASK_ID="3")
    assert machine.requeued == ["12_3"]
    assert machine.seen["env"]["SUPERTRAINER_JOB"] == "12_3"


def test_a_job_that_slurm_is_ending_is_left_to_slurm(machine: Machine) -> None:
    machine.says(state="CANCELLED")
    ended = machine.start(ClusterConfig(), SAVES="1")
    assert (ended.returncode, machine.requeued) == (0, [])
    assert ended.stdout == "slurm.sh: SLURM has the job as CANCELLED, and ends or requeues it itself.\n"


def test_a_requeue_that_slurm_was_first_with_is_no_fault(machine: Machine) -> None:
    machine.says(refused="1", after="PENDING")
    ended = machine.start(ClusterConfig(), SAVES="1")
    assert (ended.returncode, ended.stdout) == (0, "slurm.sh: SLURM was first: the job is PENDING.\n")


def test_a_refused_requeue_is_75_and_says_how_to_go_on(machine: Machine) -> None:
    machine.says(refused="1", after="RUNNING")
    ended = machine.start(ClusterConfig(), SAVES="1")
    assert ended.returncode == 75
    assert f"not in the queue. To go on: sbatch {machine.run}/slurm.sh" in ended.stdout
    assert machine.records[-1] == ("end", "12", 0, 75, False)


def test_requeues_are_limited(machine: Machine) -> None:
    cluster = cluster_of(slurm={"max_num_timeout": 2})
    assert machine.start(cluster, SAVES="1", SLURM_RESTART_COUNT="1").returncode == 0
    machine.says(state="RUNNING")
    ended = machine.start(cluster, SAVES="1", SLURM_RESTART_COUNT="2")
    assert (ended.returncode, machine.requeued) == (75, ["12"])


@pytest.mark.parametrize(("left", "code"), [(("2",), 0), (("0",), 75), ((), 75)])
def test_a_chain_goes_on_in_its_next_job(machine: Machine, left: tuple[str, ...], code: int) -> None:
    assert machine.start(cluster_of(chain=3), *left, SAVES="1").returncode == code
    assert machine.requeued == []


def test_crashes_without_a_new_checkpoint_are_limited(machine: Machine) -> None:
    cluster = cluster_of(restart_on_failure=True, max_attempts_without_progress=3)
    machine.says(after="RUNNING")
    assert [machine.start(cluster, CODE="1").returncode for _ in range(4)] == [1, 1, 1, 1]
    assert machine.requeued == ["12", "12"]
    (machine.run / "checkpoints" / "step-00000010").mkdir(parents=True)
    machine.start(cluster, CODE="1")
    assert machine.requeued == ["12", "12", "12"]


@pytest.mark.parametrize("code", [0, 2, 75, 130])
def test_what_is_no_crash_is_not_tried_again(machine: Machine, code: int) -> None:
    assert machine.start(cluster_of(restart_on_failure=True), CODE=str(code)).returncode == code
    assert machine.requeued == []


def test_a_run_that_saved_and_then_crashed_has_failed(machine: Machine) -> None:
    assert machine.start(ClusterConfig(), SAVES="1", CODE="1").returncode == 1
    assert machine.requeued == []


def test_a_failed_setup_ends_the_job_before_the_run(machine: Machine) -> None:
    ended = machine.start(cluster_of(slurm={"setup": ["true", "(exit 4)  # no such module"]}))
    assert ended.returncode == 1
    assert "slurm.sh: error: cluster.slurm.setup[1] ended with 4." in ended.stdout
    assert machine.records[-1] == ("end", "12", 0, 1, False)
    assert not (machine.root / "seen.json").exists()


def test_a_line_that_a_kill_tore_off_stays_alone(machine: Machine) -> None:
    (machine.run / "jobs.jsonl").write_text('{"event":"sta')
    machine.start(ClusterConfig())
    lines = (machine.run / "jobs.jsonl").read_text().splitlines()
    assert lines[0] == '{"event":"sta'
    assert [json.loads(line)["event"] for line in lines[1:]] == ["start", "end"]


def test_a_container_gets_what_the_run_needs(machine: Machine) -> None:
    container = {"name": "singularity", "image": "/my image.sif", "mounts": ["/data"], "arguments": ["--cleanenv"]}
    machine.start(cluster_of(container=container, vendor={"name": "nvidia"}))
    words = (machine.root / "singularity").read_text().split("\0")
    assert words[:11] == [
        "exec",
        "--nv",
        "--bind",
        str(machine.root),  # the run and the code lie in it
        "--bind",
        "/data",
        "--pwd",
        str(machine.root),
        "--cleanenv",
        "/my image.sif",
        "python3",
    ]


def test_without_srun_the_shell_hands_signals_on(machine: Machine) -> None:
    (machine.code / "supertrainer" / "main.py").write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))\n"
        "os.kill(os.getppid(), signal.SIGUSR1)\n"
        "time.sleep(20)\n"
    )
    assert machine.start(cluster_of(slurm={"use_srun": False})).returncode == 7
    assert not (machine.root / "srun").exists()


def test_a_process_that_is_not_ready_lives_through_the_signal(machine: Machine) -> None:
    (machine.code / "supertrainer" / "main.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGUSR1)\n")
    assert machine.start(ClusterConfig()).returncode == 0


def test_a_script_starts_in_a_job_only(machine: Machine) -> None:
    machine.start(ClusterConfig())
    alone = subprocess.run(
        ["bash", machine.run / "slurm.sh"], capture_output=True, text=True, env={"PATH": os.environ["PATH"]}
    )
    assert alone.returncode == 1
    assert "start this script with sbatch" in alone.stderr


if __name__ == "__main__":
    for name, text in golden_texts().items():
        (GOLDEN / f"{name}.sh").write_text(text, encoding="utf-8")
