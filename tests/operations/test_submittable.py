"""What a submit refuses before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from supertrainer.config.command import Command
from supertrainer.config.for_job import validate_for_job
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import read_groups
from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError, LaunchError
from supertrainer.operations.submittable import require_controller, require_submittable


def config_of(*overrides: str) -> Config:
    command = Command(overrides=("+experiment=train_bert", *overrides))
    return validate_for_job(compose_command(command, environment={}, groups=read_groups()), environment={})


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def test_a_secret_must_be_in_the_environment_of_the_submit() -> None:
    config = config_of("cluster.site.environment={TOKEN: '${secret:MY_TOKEN}'}")
    with pytest.raises(ConfigError) as raised:
        require_submittable([config], environment={})
    assert str(raised.value) == (
        "ConfigError: ${secret:MY_TOKEN}: MY_TOKEN is not in the environment.\n"
        "  Why: the job inherits the environment of its submit.\n"
        "  Fix: export MY_TOKEN=… before the submit."
    )
    require_submittable([config], environment={"MY_TOKEN": "x"})


def test_a_check_is_no_job() -> None:
    with pytest.raises(ConfigError, match=r"operation=check is no job"):
        require_submittable([config_of("operation=check")], environment={})


def test_a_config_is_validated_for_the_jobs_processes() -> None:
    eight = ["cluster.slurm.nodes=2", "cluster.slurm.gpus_per_node=4"]
    small = "trainer.training_kwargs.per_device_train_batch_size=4"
    assert config_of(*eight, small).cluster.processes_per_run == 8
    with pytest.raises(ConfigError, match=r"8 × 8 processes does not divide trainer.global_batch_size=32"):
        config_of(*eight)


def test_without_slurm_nothing_is_submitted() -> None:
    with pytest.raises(LaunchError, match="sbatch is not on this machine"):
        require_controller()
