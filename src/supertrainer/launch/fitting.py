"""Whether a partition could ever start a job: its rules, and what its nodes have."""

from __future__ import annotations

import contextlib
import grp
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from supertrainer.config.cluster import SlurmConfig
from supertrainer.launch.accounting import wall_and_size_misfits
from supertrainer.launch.partitions import Node, Partition, Rules


@dataclass(frozen=True)
class Need:
    """What a job asks for; per node where not said otherwise."""

    nodes: int
    seconds: int
    cpus: int
    memory_mb: int
    gres: Mapping[tuple[str, str], int]
    constraint: str | None
    excluded: frozenset[str]
    named: tuple[str, ...]


@dataclass(frozen=True)
class Misfit:
    """Why one partition can't start a job: the config's key, what is asked, and what would be allowed."""

    key: str
    what: str
    allowed: str


def misfits(partition: Partition, need: Need, slurm: SlurmConfig, nodes: Sequence[Node], rules: Rules) -> list[Misfit]:
    """Why a partition can't start the job; empty if it can."""
    its_nodes = [node for node in nodes if partition.name in node.partitions]
    found = [*_rule_misfits(partition, need, slurm, rules)]
    if nodes:  # without a list of nodes nothing can be said of them
        found += _node_misfits(partition, need, its_nodes)
    return found


def _rule_misfits(partition: Partition, need: Need, slurm: SlurmConfig, rules: Rules) -> Iterator[Misfit]:
    """What the partition's own rules forbid."""
    if partition.state != "UP":
        yield Misfit("cluster.slurm.partition", f"it is {partition.state}", "")
    account, qos = slurm.account or rules.default_account, slurm.qos
    if account and not partition.allows("Accounts", account):
        allowed = f"cluster.slurm.account: {partition.allowed('Accounts')}"
        yield Misfit("cluster.slurm.account", f"{account} may not use it", allowed)
    if qos and not partition.allows("Qos", qos):
        yield Misfit("cluster.slurm.qos", f"{qos} may not use it", f"cluster.slurm.qos: {partition.allowed('Qos')}")
    if os.getuid() != 0:
        groups = _groups()
        if groups and not any(partition.allows("Groups", group) for group in groups):
            allowed = f"it is for the groups {partition.allowed('Groups')}"
            yield Misfit("cluster.slurm.partition", "none of your groups may use it", allowed)
        if partition.fields.get("RootOnly") == "YES":
            yield Misfit("cluster.slurm.partition", "only root may use it", "")
    flags = (rules.qos or {}).get(qos or "", {}).get("Flags", "")
    if partition.max_seconds is not None and need.seconds > partition.max_seconds and "PartitionTimeLimit" not in flags:
        most = partition.max_seconds // 60
        what = f"{slurm.timeout_min} min are asked for, {most} are allowed"
        yield Misfit("cluster.slurm.timeout_min", what, f"cluster.slurm.timeout_min={most} at most")
    if partition.max_nodes is not None and need.nodes > partition.max_nodes and "PartitionMaxNodes" not in flags:
        what = f"{need.nodes} nodes are asked for, {partition.max_nodes} are allowed"
        yield Misfit("cluster.slurm.nodes", what, f"cluster.slurm.nodes={partition.max_nodes} at most")
    if need.nodes < partition.min_nodes and "PartitionMinNodes" not in flags:
        what = f"{need.nodes} nodes are asked for, it takes jobs from {partition.min_nodes} nodes on"
        yield Misfit("cluster.slurm.nodes", what, f"cluster.slurm.nodes={partition.min_nodes} at least")
    if partition.max_cpus_per_node is not None and need.cpus > partition.max_cpus_per_node:
        what = f"{need.cpus} CPUs per node are asked for, {partition.max_cpus_per_node} are allowed"
        allowed = f"tasks_per_node × cpus_per_task={partition.max_cpus_per_node} at most"
        yield Misfit("cluster.slurm.cpus_per_task", what, allowed)
    if partition.max_memory_mb is not None and need.memory_mb > partition.max_memory_mb:
        what = f"{_gib(need.memory_mb)} GiB per node are asked for, {_gib(partition.max_memory_mb)} are allowed"
        yield Misfit("cluster.slurm.mem_gb", what, f"cluster.slurm.mem_gb={_gib(partition.max_memory_mb)} at most")
    size = {"node": need.nodes, "cpu": need.nodes * need.cpus, "gres/gpu": need.nodes * _gpus(need)}
    yield from (
        Misfit(*found)
        for found in wall_and_size_misfits(
            rules, account=account, qos=qos, partition=partition, seconds=need.seconds, size=size
        )
    )


def _node_misfits(partition: Partition, need: Need, nodes: Sequence[Node]) -> Iterator[Misfit]:
    """What its nodes don't have: first each thing alone, then all of them on enough nodes at once."""
    missing = [name for name in need.named if name not in {node.name for node in nodes}]
    if missing:
        allowed = "cluster.slurm.nodelist=null, or nodes of this partition"
        yield Misfit("cluster.slurm.nodelist", f"{', '.join(missing[:5])} is not in it", allowed)
        return
    if not nodes:
        yield Misfit("cluster.slurm.partition", "it has no nodes that may be used", "")
        return
    found = list(_single_misfits(need, nodes))
    if len(nodes) < need.nodes:
        what = f"{need.nodes} nodes are asked for, it has {len(nodes)}"
        found.append(Misfit("cluster.slurm.nodes", what, f"cluster.slurm.nodes={len(nodes)} at most"))
    yield from found
    able = [node for node in nodes if _fits(node, need)]
    if not found and not able:
        yield Misfit("cluster.slurm", "none of its nodes has all that is asked for at once", "ask for less")
    elif not found and len(able) < need.nodes:
        what = f"{need.nodes} nodes are asked for; {len(able)} of its {len(nodes)} have all that is asked for"
        yield Misfit("cluster.slurm.nodes", what, f"cluster.slurm.nodes={len(able)} at most")


def _single_misfits(need: Need, nodes: Sequence[Node]) -> Iterator[Misfit]:
    for (name, kind), number in need.gres.items():
        most = max(node.count(name, kind or None) for node in nodes)
        if number > most:
            shown = f"{name}:{kind}" if kind else "GPUs" if name == "gpu" else name
            key = "cluster.slurm.gres" if kind or name != "gpu" else "cluster.slurm.gpus_per_node"
            others = sorted({f"{its}:{type_}" for node in nodes for its, type_ in node.gres if its == name and type_})
            instead = f"there is none, but {', '.join(others)}" if others else "there is none"
            allowed = f"{most} per node at most" if most else instead
            yield Misfit(key, f"{number} {shown} per node are asked for, its nodes have {most}", allowed)
    most = max(node.cpus for node in nodes)
    if need.cpus > most:
        what = f"{need.cpus} CPUs per node are asked for, its nodes have {most}"
        yield Misfit("cluster.slurm.cpus_per_task", what, f"tasks_per_node × cpus_per_task={most} at most")
    most = max(node.memory_mb for node in nodes)
    if need.memory_mb > most:
        what = f"{_gib(need.memory_mb)} GiB per node are asked for, its nodes have {_gib(most)}"
        yield Misfit("cluster.slurm.mem_gb", what, f"cluster.slurm.mem_gb={_gib(most)} at most")
    if need.constraint and not any(meets(node.features, need.constraint) for node in nodes):
        features = sorted(set().union(*(node.features for node in nodes)) - {"", "(null)"})
        allowed = f"its nodes' features: {', '.join(features) or 'none'}"
        yield Misfit("cluster.slurm.constraint", f"{need.constraint} is met by none of its nodes", allowed)


def meets(features: frozenset[str], constraint: str) -> bool:
    """Whether a node's features may serve a constraint: `a&b`, `a|b`; with counts, brackets or parentheses any name."""
    if re.search(r"[\[\]()*!]", constraint):
        return any(name in features for name in re.findall(r"[^\s\[\]()*!&|,]+", constraint) if not name.isdecimal())
    return any(all(part.strip() in features for part in re.split(r"[&,]", choice)) for choice in constraint.split("|"))


def _fits(node: Node, need: Need) -> bool:
    return (
        node.cpus >= need.cpus
        and node.memory_mb >= need.memory_mb
        and all(node.count(name, kind or None) >= number for (name, kind), number in need.gres.items())
        and (not need.constraint or meets(node.features, need.constraint))
    )


def _gpus(need: Need) -> int:
    return sum(number for (name, _), number in need.gres.items() if name == "gpu")


def _gib(megabytes: int) -> str:
    return f"{math.floor(megabytes / 10.24) / 100:g}"  # never more than there is


def _groups() -> list[str]:
    names = []
    for number in {os.getgid(), *os.getgroups()}:
        with contextlib.suppress(KeyError):  # a number without a name on this machine
            names.append(grp.getgrgid(number).gr_name)
    return names
