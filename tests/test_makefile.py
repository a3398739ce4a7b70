"""What `make` says and does, with stand-ins for Python and conda, so that nothing is installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = (
    "awk", "basename", "cat", "cksum", "cp", "dirname", "echo", "find", "grep", "head", "make", "mkdir", "rm",
    "sed", "sh", "sort", "tr", "uname",
)  # fmt: skip

# Stands for an interpreter and, through the copy that `-m venv` makes, for that of .venv; it writes down its calls.
PYTHON = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case "$*" in
*version_info*) exit {too_old} ;;
*ensurepip,\\ venv*) exit {no_venv} ;;
*disk_usage*) echo {free_mib} ;;
--version) echo Python {version} ;;
"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m pip install"*) printf '%s' '{pip_error}' >&2; exit {pip_status} ;;
esac
"""
CONDA = """#!/bin/sh
echo "$*" >>"$(dirname "$0")/calls"
case "$*" in
"env list") printf '# conda environments:\\n#\\nbase  *  /opt/conda\\nhere     /opt/conda/envs/here\\n' ;;
"env export"*) cat "$(dirname "$0")/exported" ;;
esac
"""
EXPORTED = """\
name: here
channels:
  - conda-forge
  - https://user:s3cret@conda.example/t/tk-1234/private
  - /scratch/site/channel
dependencies:
  - python=3.11.9
  - pip:
      - numpy==2.4.6
      - supertrainer==0.1.0
      - mine @ file:///home/someone/mine
      - other @ git+https://t0ken@git.example/x/y@abc
      - torch==2.13.0+cpu
variables:
  HF_TOKEN: hf_s3cret
prefix: /opt/conda/envs/here
"""
PORTABLE = """\
name: here
channels:
  - conda-forge
dependencies:
  - python=3.11.9
  - pip:
      - numpy==2.4.6
      - -e .[dev]
      - other @ git+https://git.example/x/y@abc
      - torch==2.13.0
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What make needs of the repository, in a folder with a space in its name, beside a `bin` with no Python in it."""
    directory = tmp_path / "a checkout"
    for name in ("scripts", "requirements", "configs/experiment"):
        shutil.copytree(ROOT / name, directory / name)
    for name in ("Makefile", "pyproject.toml", "setup.py", "environment.yaml"):
        shutil.copy(ROOT / name, directory)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return directory


def make(checkout: Path, *words: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout.parent / "bin"), "LC_ALL": "C.UTF-8", **(variables or {})}
    return subprocess.run(["make", *words], cwd=checkout, env=environment, capture_output=True, text=True, timeout=120)


def add_program(checkout: Path, name: str, text: str) -> Path:
    """Puts a stand-in on PATH; gives the file in which it writes down its calls."""
    program = checkout.parent / "bin" / name
    program.write_text(text)
    program.chmod(0o755)
    return program.parent / "calls"


def python_stand_in(
    *,
    version: str = "3.11.9",
    too_old: int = 0,
    no_venv: int = 0,
    free_mib: int = 9000,
    pip_status: int = 0,
    pip_error: str = "",
) -> str:
    return PYTHON.format(
        version=version, too_old=too_old, no_venv=no_venv, free_mib=free_mib, pip_status=pip_status, pip_error=pip_error
    )


def pip_calls(checkout: Path) -> list[str]:
    lines = (checkout / ".venv/bin/calls").read_text().splitlines()
    return [line for line in lines if line.startswith("-m pip install")]


def test_make_alone_lists_every_target(checkout: Path) -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    listed = [line.split()[0] for line in make(checkout).stdout.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(phony[1].split())
    assert {"help", "setup", "demo", "test", "check", "format", "bench", "install_conda_env"} <= set(listed)


def test_setup_installs_the_pins_then_the_checkout_then_the_samples(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in())
    done = make(checkout, "setup", variables={"PIP_ARGS": "--index-url https://index.example"})
    assert done.returncode == 0, done.stderr
    options = "-m pip install --retries 2 --index-url https://index.example "
    assert pip_calls(checkout) == [
        options + "-r requirements/cpu.txt -r requirements/dev.txt",
        options + "--no-deps --no-build-isolation -e .",
        options + "--no-deps -r requirements/samples.txt",
    ]


def test_setup_runs_once_and_again_when_a_pin_changes(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in())
    make(checkout, "setup")
    again = make(checkout, "setup")
    assert (again.stdout, len(pip_calls(checkout))) == ("", 3)
    with (checkout / "requirements/dev.txt").open("a") as file:
        file.write("one-more==1.0\n")
    make(checkout, "setup")
    assert len(pip_calls(checkout)) == 6


def test_an_install_that_failed_is_not_taken_for_done(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in(pip_status=1, pip_error="boom"))
    first = make(checkout, "setup")
    assert "boom" in first.stderr
    assert "setup: pip failed" in first.stderr
    assert make(checkout, "setup").returncode != 0
    assert len(pip_calls(checkout)) == 2


def test_no_python(checkout: Path) -> None:
    done = make(checkout, "setup")
    assert done.returncode != 0
    assert "no Python 3.11 or newer. python3 does not run here." in done.stderr
    assert "apt install python3 python3-venv" in done.stderr


def test_an_old_python_is_named_and_a_newer_one_beside_it_is_taken(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in(version="3.9.18", too_old=1))
    assert "no Python 3.11 or newer. python3 is Python 3.9.18." in make(checkout, "demo").stderr
    add_program(checkout, "python3.12", python_stand_in(version="3.12.1"))
    assert "making .venv with Python 3.12.1" in make(checkout, "setup").stdout


def test_the_python_that_was_asked_for_is_not_replaced_by_another(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in())
    done = make(checkout, "setup", "PYTHON=/nowhere/python")
    assert "/nowhere/python does not run here." in done.stderr
    assert not (checkout / ".venv").exists()


def test_python_without_venv(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in(no_venv=1))
    assert "apt install python3-venv" in make(checkout, "test").stderr


def test_too_little_disk(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in(free_mib=499))
    done = make(checkout, "setup")
    assert f"499 MiB free in {checkout}; about 3000 are needed." in done.stderr
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize(
    ("pip_error", "said"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "the disk is full.",
        ),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no file for Python 3.11.9"),
        ("ERROR: something else", "pip failed; its own words stand above."),
    ],
)
def test_pip_errors_in_plain_words(checkout: Path, pip_error: str, said: str) -> None:
    add_program(checkout, "python3", python_stand_in(pip_status=1, pip_error=pip_error))
    done = make(checkout, "setup")
    assert pip_error in done.stderr
    assert said in done.stderr


def test_an_index_out_of_reach_is_told_from_a_missing_package(checkout: Path, tmp_path: Path) -> None:
    """pip itself, on a port where nothing listens: its own last words are `No matching distribution found`."""
    add_program(
        checkout,
        "python3",
        '#!/bin/sh\ncase "$*" in\n'
        '"-m venv"*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;\n'
        f'*) exec "{sys.executable}" "$@" ;;\nesac\n',
    )
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1"}
    done = make(
        checkout, "setup", "PIP_ARGS=--dry-run --ignore-installed", variables={**nowhere, "HOME": str(tmp_path)}
    )
    assert "No matching distribution found" in done.stderr
    assert "setup: pip can't reach its package index." in done.stderr


def test_demo_of_an_unknown_experiment_lists_those_there_are_and_installs_nothing(checkout: Path) -> None:
    calls = add_program(checkout, "python3", python_stand_in())
    done = make(checkout, "demo", "EXPERIMENT=train_brt")
    assert done.returncode != 0
    assert "there is no experiment 'train_brt'" in done.stderr
    assert "  train_bert\n" in done.stderr
    assert not calls.exists()


def test_demo_sets_up_and_runs_the_toy_mode(checkout: Path) -> None:
    add_program(checkout, "python3", python_stand_in())
    assert make(checkout, "demo").returncode == 0
    calls = (checkout / ".venv/bin/calls").read_text().splitlines()
    assert calls[-1] == "src/supertrainer/main.py +experiment=train_bert mode=toy"


def test_conda_targets_without_conda(checkout: Path) -> None:
    for target in ("install_conda_env", "export_conda_env"):
        done = make(checkout, target)
        assert done.returncode != 0
        assert "none of conda, mamba and micromamba is on PATH." in done.stderr


@pytest.mark.parametrize(
    ("program", "name", "call"),
    [
        ("conda", "new", "env create -n new -f environment.yaml"),
        ("conda", "here", "env update -n here -f environment.yaml"),
        ("micromamba", "new", "create --yes -n new -f environment.yaml"),
        ("micromamba", "here", "install --yes -n here -f environment.yaml"),
    ],
)
def test_install_conda_env_creates_or_updates(checkout: Path, program: str, name: str, call: str) -> None:
    calls = add_program(checkout, program, CONDA)
    assert make(checkout, "install_conda_env", f"CONDA_ENV={name}").returncode == 0
    assert calls.read_text().splitlines()[1:] == [
        call,
        f"run -n {name} python -m pip install --no-deps -r requirements/samples.txt",
    ]


def test_export_conda_env_holds_nothing_of_the_machine(checkout: Path) -> None:
    add_program(checkout, "conda", CONDA)
    (checkout.parent / "bin/exported").write_text(EXPORTED)
    done = make(checkout, "export_conda_env", "CONDA_ENV=here", "CONDA_FILE=out.yaml")
    assert (checkout / "out.yaml").read_text() == PORTABLE
    assert "left out 3 lines" in done.stderr
    assert "s3cret" not in done.stdout + done.stderr


def test_export_of_an_environment_that_is_not_there_names_those_that_are(checkout: Path) -> None:
    add_program(checkout, "conda", CONDA)
    assert "name one of: base here" in make(checkout, "export_conda_env", "CONDA_ENV=gone").stderr
