"""A cluster's config: presets compose, values reach a script as they are, and what a job can't be is refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from supertrainer.config.cluster import ClusterConfig
from supertrainer.config.command import Command
from supertrainer.config.front_door import compose_command
from supertrainer.config.groups import describe, read_groups
from supertrainer.config.sbatch import OWN_KEYS
from supertrainer.config.validate import validate
from supertrainer.core.errors import ConfigError

GROUPS = read_groups()
GIVEN = {
    "lumi": ("cluster.slurm.account=project_1", "cluster.container.image=/images/torch.sif"),
    "nvidia_pyxis": ('cluster.container.image="nvcr.io#nvidia/pytorch:25.01-py3"',),
}
PRESETS = ("local", "lumi", "nvidia_infiniband", "nvidia_pyxis", "nvidia_slingshot")
PARTS = sorted(name for name in GROUPS.files if name.startswith("cluster/common/"))


def preset(name: str, *overrides: str, config_dirs: tuple[Path, ...] = ()) -> ClusterConfig:
    words = ("+experiment=train_bert", f"cluster={name}", *GIVEN.get(name, ()), *overrides)
    groups = read_groups(config_dirs)
    composed = compose_command(Command(overrides=words, config_dirs=config_dirs), environment={}, groups=groups)
    return validate(composed, environment={}).cluster


def cluster(**keys: Any) -> ClusterConfig:
    return ClusterConfig.model_validate_json(json.dumps(keys))


def slurm(**keys: Any) -> ClusterConfig:
    return cluster(slurm=keys)


def test_the_presets_are_all_there() -> None:
    assert GROUPS.options["cluster"] == PRESETS


@pytest.mark.parametrize(
    ("name", "vendor", "fabric", "container", "site", "tasks"),
    [
        ("local", "none", "none", "none", "none", 1),
        ("lumi", "amd", "slingshot", "singularity", "lumi", 8),
        ("nvidia_infiniband", "nvidia", "infiniband", "none", "none", 8),
        ("nvidia_slingshot", "nvidia", "slingshot", "none", "none", 4),
        ("nvidia_pyxis", "nvidia", "infiniband", "pyxis", "none", 8),
    ],
)
def test_a_preset_is_four_axes(name: str, vendor: str, fabric: str, container: str, site: str, tasks: int) -> None:
    config = preset(name)
    axes = (config.name, config.vendor.name, config.fabric.name, config.container.name, config.site.name)
    assert axes == (name, vendor, fabric, container, site)
    assert config.processes_per_run == tasks
    assert config.has_gpus == (name != "local")


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_accepted_where_it_belongs(name: str) -> None:
    axis, option = name.removeprefix("cluster/common/").split("/")
    image = "cluster.container.image=x" if axis == "container" and option != "none" else "cluster.name=x"
    config = preset("local", f"cluster/common/{axis}@cluster.{axis}={option}", image)
    assert vars(config)[axis].name == option


@pytest.mark.parametrize("name", [*PARTS, *(f"cluster/{option}" for option in PRESETS)])
def test_every_file_says_what_it_is_and_every_setting_why(name: str) -> None:
    assert describe(GROUPS.files[name])
    tree = OmegaConf.to_container(OmegaConf.load(GROUPS.files[name]))
    node = {**tree, **tree.get("fabric", {})}
    for setting in [*(node.get("environment") or {}).values(), *(node.get("setup") or ())]:
        assert setting["why"], setting


def test_what_a_preset_can_not_know_is_asked_for() -> None:
    groups = read_groups()
    words = ("+experiment=train_bert", "cluster=lumi")
    with pytest.raises(ConfigError) as caught:
        validate(compose_command(Command(overrides=words), environment={}, groups=groups), environment={})
    assert [problem.what for problem in caught.value.problems] == [
        "cluster.container.image: is required.",
        "cluster.slurm.account: is required.",
    ]


def test_a_site_is_one_file_of_the_users_own(tmp_path: Path) -> None:
    file = tmp_path / "cluster" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(
        "# Our cluster.\n"
        "defaults:\n"
        "  - /cluster/common/vendor@vendor: nvidia\n"
        "  - /cluster/common/fabric@fabric: infiniband\n"
        "  - _self_\n"
        "name: mine\n"
        "fabric: {environment: {NCCL_NET: null, NCCL_IB_HCA: mlx5}}\n"
        "site: {name: mine, setup: [module load cuda], environment: {SCRATCH: {value: /scratch, why: fast disks}}}\n"
        "slurm: {partition: gpu, gpus_per_node: 4}\n"
    )
    config = preset("mine", config_dirs=(tmp_path,))
    assert {name: setting.value for name, setting in config.fabric.environment.items()} == {"NCCL_IB_HCA": "mlx5"}
    assert [(line.value, line.why) for line in config.site.setup] == [("module load cuda", "")]
    assert config.site.environment["SCRATCH"].why == "fast disks"
    assert config.tasks_per_node == 4


def test_a_bare_number_is_a_value() -> None:
    config = cluster(site={"environment": {"A": 131072, "B": 2.5, "C": "01"}})
    assert [setting.value for setting in config.site.environment.values()] == ["131072", "2.5", "01"]


def test_a_config_comes_back_from_its_dump() -> None:
    config = preset("lumi")
    assert ClusterConfig.model_validate_json(json.dumps(config.model_dump(mode="json"))) == config
    assert copy.deepcopy(ClusterConfig()) == ClusterConfig()  # the default of a field is copied


@pytest.mark.parametrize(
    ("keys", "tasks", "processes", "has_gpus"),
    [
        ({}, 1, 1, False),
        ({"nodes": 3}, 1, 3, False),
        ({"gpus_per_node": 4, "nodes": 2}, 4, 8, True),
        ({"gpus_per_node": 4, "tasks_per_node": 1}, 1, 1, True),
        ({"gpus_per_node": 8, "gpus_per_task": 2}, 4, 4, True),
        ({"gpus_per_task": 2, "tasks_per_node": 3}, 3, 3, True),
        ({"gres": "gpu:a100:4,shard:2"}, 4, 4, True),
        ({"gres": "gpu"}, 1, 1, True),
        ({"gres": "license:2"}, 1, 1, False),
        ({"additional_parameters": {"gpus": 2}}, 1, 1, True),
    ],
)
def test_processes_follow_from_what_is_asked_for(keys: Any, tasks: int, processes: int, has_gpus: bool) -> None:
    config = slurm(**keys)
    assert (config.tasks_per_node, config.processes_per_run, config.has_gpus) == (tasks, processes, has_gpus)


REFUSED = [
    ({"mem_gb": 4, "mem_per_cpu": "1G"}, "mem_gb and mem_per_cpu exclude each other"),
    ({"mem_per_gpu": "60 G", "gpus_per_node": 1}, "should match pattern"),
    ({"gpus_per_node": 8, "gpus_per_task": 3}, r"don't agree. Fix: gpus_per_task=null, or gpus_per_node=6"),
    ({"gpus_per_node": 8, "gpus_per_task": 1, "tasks_per_node": 4}, r"of tasks_per_node=4 tasks don't agree"),
    ({"gres": "gpu:2", "gpus_per_node": 2}, "both ask for GPUs"),
    ({"cpus_per_task": 2, "cpus_per_gpu": 2, "gpus_per_node": 1}, "cpus_per_task and cpus_per_gpu exclude"),
    ({"mem_per_gpu": "8G"}, "mem_per_gpu=8G without a GPU"),
    ({"timeout_min": 2}, r"signal_delay_s=120 leaves no time of timeout_min=2: .* Fix: signal_delay_s=60"),
    ({"partition": "a\nb"}, "holds a line break"),
    ({"comment": " "}, "is empty. Fix: null"),
    ({"python": "a\0b"}, "holds a null byte"),
    ({"use_srun": False, "nodes": 2}, "use_srun=false with 2 processes"),
    ({"use_srun": False, "gpus_per_node": 2}, "use_srun=false with 2 processes"),
    ({"srun_args": ["--cpu-bind=mask_cpu:0x1,0x2"]}, "binds 2 tasks of a node to CPUs; here a node has 1"),
    ({"additional_parameters": {"mem": 4}}, r"mem has a key of its own. Fix: slurm.mem_gb"),
    ({"additional_parameters": {"ntasks_per_node": 4}}, r"has a key of its own. Fix: slurm.tasks_per_node"),
    ({"additional_parameters": {"array": "0-3"}}, "array can't be set: a sweep's script writes it"),
    ({"additional_parameters": {"--licenses": "a"}}, "is no long option of sbatch"),
    ({"additional_parameters": {"licenses": "a\nb"}}, "is empty or holds a line break"),
    ({"additional_parameters": {"licenses": ["a"]}}, "licenses is no text, number, true or false"),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED)
def test_what_slurm_or_a_script_can_not_take_is_refused(keys: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        slurm(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"container": {"name": "singularity"}}, "name=singularity without an image"),
        (
            {"container": {"name": "pyxis", "image": "x"}, "slurm": {"use_srun": False}},
            "pyxis is a part of srun. Fix: use_srun=true",
        ),
        ({"site": {"environment": {"A B": 1}}}, "'A B' is no name of an environment variable"),
        ({"site": {"environment": {"A": True}}}, "spell in many ways. Fix: the text that is meant"),
        ({"site": {"environment": {"A": {"value": "x", "wy": "y"}}}}, "Extra inputs are not permitted"),
        (
            {
                "processes": "torchrun",
                "slurm": {"tasks_per_node": 2, "srun_args": ["--cpu-bind=mask_cpu:0x1,0x2"]},
            },
            r"here a node has 1 \(processes=torchrun\)",
        ),
        ({"chain": 0}, "greater than or equal to 1"),
    ],
)
def test_axes_that_do_not_go_together_are_refused(keys: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        cluster(**keys)


def test_a_message_names_the_key() -> None:
    with pytest.raises(ConfigError) as caught:
        preset("local", "cluster.slurm.mem_gb=4", "cluster.slurm.mem_per_cpu=1G", "cluster.fabric.name=ethernet")
    assert str(caught.value).splitlines() == [
        "ConfigError: cluster.fabric.name='ethernet': expected one of none, infiniband, slingshot.",
        "  Fix: one of: infiniband, none, slingshot.",
        "ConfigError: cluster.slurm: mem_gb and mem_per_cpu exclude each other in SLURM.",
        "  Fix: keep one, set the rest to null.",
    ]


def test_options_with_a_key_of_their_own_name_one_that_is_there() -> None:
    for key in OWN_KEYS.values():
        for name in key.replace("=N", "").replace("=1", "").split(" and "):
            node, _, field = name.partition(".")
            known = type(slurm().slurm).model_fields if node == "slurm" else ClusterConfig.model_fields
            assert field in known, key
