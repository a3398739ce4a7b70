"""What a cluster would never start, on a made-up one."""

import pytest

from made_up_cluster import CPU_NODES, GPU_NODES, PARTITION, RULES, answer, problems
from supertrainer.launch.partitions import parse_gres, read_nodes


@pytest.fixture
def cluster(programs):
    """dev: 2 of the GPU nodes for an hour; gpu: all 4 for two days, 3 nodes at most; cpu: 2 nodes without GPUs."""
    rules = [
        RULES | {"name": "dev", "default": "YES", "time": "01:00:00"},
        RULES | {"name": "gpu", "time": "2-00:00:00", "nodes": "3"},
        RULES | {"name": "cpu", "time": "3-00:00:00"},
    ]
    nodes = [
        *(GPU_NODES | {"name": f"g{n}", "partitions": "dev,gpu" if n < 3 else "gpu"} for n in (1, 2, 3, 4)),
        *(CPU_NODES | {"name": f"c{n}", "partitions": "cpu"} for n in (1, 2)),
    ]
    answer(programs, rules, nodes)
    return programs


def test_what_fits_is_let_through(cluster):
    assert problems() == []  # the default partition, an hour, one process
    assert problems(partition="gpu", nodes=3, gpus_per_node=8, cpus_per_task=7, timeout_min=2880, mem_gb=480.0) == []
    assert problems(partition="gpu", gres="gpu:mi250:8", constraint="amd&mi250", tasks_per_node=1) == []
    assert problems(partition="dev,gpu", timeout_min=120) == []  # one of them takes it


def test_a_time_limit_above_the_partitions(cluster):
    assert problems(timeout_min=61) == [
        (
            "cluster.slurm.timeout_min: 61 min are asked for, 60 are allowed (partition dev).",
            "cluster.slurm.timeout_min=60 at most; partitions that would take it as it is: gpu, cpu.",
        )
    ]
    assert problems(timeout_min=5000, gpus_per_node=1) == [
        (
            "cluster.slurm.timeout_min: 5000 min are asked for, 60 are allowed (partition dev).",
            "cluster.slurm.timeout_min=60 at most; no partition would take it as it is.",
        )
    ]


def test_more_nodes_than_allowed_or_there(cluster):
    assert problems(partition="gpu", nodes=4) == [
        (
            "cluster.slurm.nodes: 4 nodes are asked for, 3 are allowed (partition gpu).",
            "cluster.slurm.nodes=3 at most; no partition would take it as it is.",
        )
    ]
    assert problems(nodes=3) == [
        (
            "cluster.slurm.nodes: 3 nodes are asked for, it has 2 (partition dev).",
            "cluster.slurm.nodes=2 at most; partition that would take it as it is: gpu.",
        )
    ]


def test_more_gpus_than_a_node_has(cluster):
    assert problems(gpus_per_node=9, tasks_per_node=1) == [
        (
            "cluster.slurm.gpus_per_node: 9 GPUs per node are asked for, its nodes have 8 (partition dev).",
            "8 per node at most; no partition would take it as it is.",
        )
    ]
    assert problems(partition="cpu", gpus_per_task=2, tasks_per_node=4) == [
        (
            "cluster.slurm.gpus_per_node: 8 GPUs per node are asked for, its nodes have 0 (partition cpu).",
            "there is none; partitions that would take it as it is: dev, gpu.",
        )
    ]


def test_a_type_of_gpu_that_is_not_there(cluster):
    assert problems(gres="gpu:a100:2", tasks_per_node=1) == [
        (
            "cluster.slurm.gres: 2 gpu:a100 per node are asked for, its nodes have 0 (partition dev).",
            "there is none, but gpu:mi250; no partition would take it as it is.",
        )
    ]


def test_more_cpus_than_a_node_has(cluster):
    expected = (
        "cluster.slurm.cpus_per_task: 64 CPUs per node are asked for, its nodes have 56 (partition dev).",
        "tasks_per_node × cpus_per_task=56 at most; partition that would take it as it is: cpu.",
    )
    assert problems(tasks_per_node=8, cpus_per_task=8) == [expected]
    [(what, _)] = problems(gpus_per_node=8, cpus_per_gpu=8)
    assert what == expected[0]


@pytest.mark.parametrize(
    ("memory", "shown"),
    [({"mem_gb": 481.0}, "481"), ({"mem_per_gpu": "61G"}, "488"), ({"mem_per_cpu": "61696M"}, "482")],
)
def test_more_memory_than_a_node_has(cluster, memory, shown):
    assert problems(gpus_per_node=8, **memory) == [
        (
            f"cluster.slurm.mem_gb: {shown} GiB per node are asked for, its nodes have 480 (partition dev).",
            "cluster.slurm.mem_gb=480 at most; no partition would take it as it is.",
        )
    ]


def test_a_figure_that_is_allowed_is_never_rounded_up(programs):
    node = GPU_NODES | {"name": "g1", "partitions": "dev", "memory": 8049}  # 7.8603… GiB
    answer(programs, [RULES | {"name": "dev", "default": "YES"}], [node])
    [(_, fix)] = problems(mem_gb=8.0)
    assert fix.startswith("cluster.slurm.mem_gb=7.86 at most")
    assert problems(mem_gb=7.86) == []


def test_features_nodes_and_excluded_nodes(cluster):
    assert problems(constraint="nvidia") == [
        (
            "cluster.slurm.constraint: nvidia is met by none of its nodes (partition dev).",
            "its nodes' features: amd, mi250; no partition would take it as it is.",
        )
    ]
    assert problems(constraint="nvidia|amd") == []
    assert problems(constraint="[mi250*2]") == []
    [(what, fix)] = problems(nodelist="g[3-4]", nodes=2)
    assert what == "cluster.slurm.nodelist: g3, g4 is not in it (partition dev)."
    assert fix.endswith("partition that would take it as it is: gpu.")
    assert problems(partition="gpu", exclude="g[3-4]", nodes=3) == [
        (
            "cluster.slurm.nodes: 3 nodes are asked for, it has 2 (partition gpu).",
            "cluster.slurm.nodes=2 at most; no partition would take it as it is.",
        )
    ]


def test_each_thing_is_there_but_not_on_one_node(programs):
    big = CPU_NODES | {"name": "c1", "partitions": "all"}
    answer(
        programs, [RULES | {"name": "all", "default": "YES"}], [GPU_NODES | {"name": "g1", "partitions": "all"}, big]
    )
    assert problems(gpus_per_node=1, cpus_per_task=100) == [
        (
            "cluster.slurm: none of its nodes has all that is asked for at once (partition all).",
            "ask for less; no partition would take it as it is.",
        )
    ]
    assert problems(gpus_per_node=1, nodes=2) == [
        (
            "cluster.slurm.nodes: 2 nodes are asked for; 1 of its 2 have all that is asked for (partition all).",
            "cluster.slurm.nodes=1 at most; no partition would take it as it is.",
        )
    ]


def test_a_partition_for_other_groups_or_for_root(programs, monkeypatch):
    monkeypatch.setattr("supertrainer.launch.fitting.os.getuid", lambda: 1000)
    monkeypatch.setattr("supertrainer.launch.fitting._groups", lambda: ["users", "lab"])
    rules = [
        PARTITION.format(**RULES | {"name": name}).replace("AllowGroups=ALL", f"AllowGroups={groups}") + "\n"
        for name, groups in (("mine", "lab,staff"), ("theirs", "staff"))
    ]
    programs.add("scontrol", stdout="".join(rules).replace("RootOnly=NO", "RootOnly=YES", 1), when="show partition")
    assert problems(partition="mine") == [
        ("cluster.slurm.partition: only root may use it (partition mine).", "no partition would take it as it is.")
    ]
    assert problems(partition="theirs") == [
        (
            "cluster.slurm.partition: none of your groups may use it (partition theirs).",
            "it is for the groups staff; no partition would take it as it is.",
        )
    ]


def test_everything_that_is_wrong_is_named_at_once(cluster):
    wrong = problems(timeout_min=61, nodes=3, gpus_per_node=9, tasks_per_node=1, cpus_per_task=99, constraint="x")
    assert [what.partition(":")[0].removeprefix("cluster.slurm.") for what, _ in wrong] == [
        "timeout_min", "gpus_per_node", "cpus_per_task", "constraint", "nodes",
    ]  # fmt: skip


def test_a_partition_that_is_not_there(cluster):
    assert problems(partition="gpus") == [
        ("cluster.slurm.partition=gpus: there is no partition gpus.", "did you mean gpu?")
    ]


def test_no_partition_and_no_default_one(programs):
    answer(programs, [RULES | {"name": "gpu"}], [GPU_NODES | {"name": "g1", "partitions": "gpu"}])
    assert problems() == [
        ("cluster.slurm.partition is not given, and there is no default one.", "cluster.slurm.partition=gpu")
    ]


def test_a_partition_of_the_environment_counts_as_sbatch_counts_it(cluster, monkeypatch):
    monkeypatch.setenv("SBATCH_PARTITION", "cpu")
    assert problems(timeout_min=100) == []
    [(what, _)] = problems(partition="dev", timeout_min=100)  # the config's own comes first
    assert "partition dev" in what


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_takes_or_starts_nothing(programs, state):
    rules = [RULES | {"name": "gpu", "default": "YES", "state": state}, RULES | {"name": "other"}]
    answer(programs, rules, [GPU_NODES | {"name": "g1", "partitions": "gpu,other"}])
    assert problems() == [
        (
            f"cluster.slurm.partition: it is {state} (partition gpu).",
            "partition that would take it as it is: other.",
        )
    ]


def test_a_partition_for_other_accounts_or_larger_jobs(programs):
    rules = [RULES | {"name": "gpu", "default": "YES", "accounts": "project_1", "qos_list": "long", "min_nodes": "2"}]
    answer(programs, rules, [GPU_NODES | {"name": f"g{n}", "partitions": "gpu"} for n in (1, 2)])
    assert problems(account="project_2", qos="short") == [
        (
            "cluster.slurm.account: project_2 may not use it (partition gpu).",
            "cluster.slurm.account: project_1; no partition would take it as it is.",
        ),
        (
            "cluster.slurm.qos: short may not use it (partition gpu).",
            "cluster.slurm.qos: long; no partition would take it as it is.",
        ),
        (
            "cluster.slurm.nodes: 1 nodes are asked for, it takes jobs from 2 nodes on (partition gpu).",
            "cluster.slurm.nodes=2 at least; no partition would take it as it is.",
        ),
    ]
    assert problems(account="project_1", qos="long", nodes=2) == []


def test_where_accounting_enforces_nothing_any_account_is_taken(cluster):
    assert problems(account="anything", qos="anything") == []


def test_nobody_is_refused_because_a_program_is_absent_or_fails(programs):
    assert problems(timeout_min=10**6, nodes=999) == []
    programs.add("scontrol", stdout=PARTITION.format(**RULES, name="gpu") + "\n", when="show partition")
    assert problems(partition="gpu", nodes=999, gpus_per_node=99, account="x", qos="y", exclude="a[1-3]") == []


def test_generic_resources_and_reserved_cores_are_read(cluster):
    assert parse_gres("gpu:a100:4(S:0-1),gpu:h100:2,nvme:2,tape") == {
        ("gpu", "a100"): 4, ("gpu", "h100"): 2, ("nvme", ""): 2, ("tape", ""): 1,
    }  # fmt: skip
    assert parse_gres("(null)") == {}
    node = read_nodes()[0]
    assert (node.name, node.cpus, node.count("gpu"), node.count("gpu", "a100")) == ("g1", 56, 8, 0)
