"""Accounts and qualities of service that a job may not use, on a made-up cluster."""

import pytest

from made_up_cluster import GPU_NODES, RULES, answer, problems


@pytest.fixture
def accounting(programs):
    """Accounts project_1 and project_2; QoS normal for both, debug (30 min, 2 nodes) for project_1 alone."""
    nodes = [GPU_NODES | {"name": f"g{n}", "partitions": "gpu"} for n in (1, 2, 3, 4)]
    answer(programs, [RULES | {"name": "gpu", "default": "YES"}], nodes, enforced="associations,limits,qos,safe")
    programs.add(
        "sacctmgr", stdout="project_1||debug,normal|normal|\nproject_2||normal|normal|10:00:00\n", when="assoc"
    )
    programs.add("sacctmgr", stdout="normal||||\ndebug|00:30:00|node=2,mem=10G||DenyOnLimit\nfree||||\n", when="qos")
    programs.add("sacctmgr", stdout="me|project_1\n", when="show user")
    return programs


def test_an_account_or_qos_that_is_not_ones_own(accounting):
    assert problems(account="other") == [
        ("cluster.slurm.account=other is not one of yours.", "one of: project_1, project_2.")
    ]
    assert problems(qos="debg") == [
        ("cluster.slurm.qos=debg: there is no such quality of service.", "did you mean debug?")
    ]
    assert problems(account="project_2", qos="debug", timeout_min=30) == [
        ("cluster.slurm.qos=debug is not allowed for the account project_2.", "one of: normal.")
    ]
    assert problems(account="project_1", qos="debug", timeout_min=30, nodes=2) == []
    asked = next(call for call in accounting.calls if "show association" in call)
    assert "where user=" in asked
    assert " cluster=lumi " in asked  # the database may know other clusters' accounts too


def test_limits_of_a_qos_and_of_an_account(accounting):
    assert problems(qos="debug", timeout_min=31, nodes=3) == [
        (
            "cluster.slurm.timeout_min: 31 min are asked for, the QoS debug allows 30 (partition gpu).",
            "cluster.slurm.timeout_min=30 at most; no partition would take it as it is.",
        ),
        (
            "cluster.slurm.nodes: 3 nodes are asked for in all, the QoS debug allows 2 (partition gpu).",
            "2 nodes in all at most; no partition would take it as it is.",
        ),
    ]
    [(what, _)] = problems(account="project_2", timeout_min=601)
    assert "601 min are asked for, the account project_2 allows 600" in what
    assert problems(timeout_min=601) == []  # the default account, project_1


def test_a_qos_that_overrides_the_partitions_time_limit(programs):
    rules = [RULES | {"name": "gpu", "default": "YES", "time": "01:00:00"}]
    answer(programs, rules, [GPU_NODES | {"name": "g1", "partitions": "gpu"}], enforced="limits")
    programs.add("sacctmgr", stdout="me|project_1\n", when="show user")
    programs.add("sacctmgr", stdout="long||||PartitionTimeLimit\n", when="show qos")
    assert problems(qos="long", timeout_min=100) == []
    assert len(problems(timeout_min=100)) == 1
