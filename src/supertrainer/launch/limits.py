"""What a cluster would never start, named before it is queued, with the figure that is allowed.

SLURM takes many a job that can't ever start, and lets it wait for ever. What can't be looked up is not refused.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from supertrainer.config.cluster import ClusterConfig, SlurmConfig
from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import Problem
from supertrainer.launch.accounting import account_problems
from supertrainer.launch.fitting import Misfit, Need, misfits
from supertrainer.launch.partitions import host_names, parse_gres, read_nodes, read_partitions, read_rules
from supertrainer.launch.slurm import SBATCH_VARIABLES

_NEVER = "SLURM would let the job wait for ever, or refuse it."
_UNITS_MB = {"K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}


def limit_problems(cluster: ClusterConfig) -> list[Problem]:
    """What keeps a job from ever starting; empty also where nothing can be asked.

    A variable such as SBATCH_PARTITION stands for what the config leaves open, as it does for sbatch.
    """
    slurm = _with_environment(cluster.slurm)
    found = _limit_problems(cluster, slurm)
    from_shell = {name: getattr(slurm, name) for name in SBATCH_VARIABLES if getattr(cluster.slurm, name) is None}
    return [_naming_variables(problem, from_shell) for problem in found]


def _naming_variables(problem: Problem, from_shell: Mapping[str, str | None]) -> Problem:
    """The problem with the variable named that the shell has set, where the config left its key open."""
    what = problem.what
    for name, value in from_shell.items():
        if value is not None:
            what = what.replace(f"cluster.slurm.{name}={value}", f"SBATCH_{name.upper()}={value} in the environment")
    return dataclasses.replace(problem, what=what)


def _limit_problems(cluster: ClusterConfig, slurm: SlurmConfig) -> list[Problem]:
    partitions = read_partitions()
    if not partitions:
        return []
    need = _need(cluster, slurm)
    nodes = [node for node in read_nodes() if node.name not in need.excluded]
    rules = read_rules()
    problems = list(account_problems(slurm, rules))
    chosen = [name for name in (slurm.partition or "").split(",") if name]
    unknown = [name for name in chosen if name not in partitions]
    if unknown:
        what = f"cluster.slurm.partition={slurm.partition}: there is no partition {unknown[0]}."
        return [*problems, Problem(what, _NEVER, did_you_mean(unknown[0], partitions))]
    chosen = chosen or [name for name, partition in partitions.items() if partition.is_default]
    found = {name: misfits(partition, need, slurm, nodes, rules) for name, partition in partitions.items()}
    fitting = [name for name in partitions if not found[name]]
    if not chosen:
        choice = f"cluster.slurm.partition={fitting[0]}" if fitting else f"one of: {', '.join(partitions)}"
        problems.append(Problem("cluster.slurm.partition is not given, and there is no default one.", _NEVER, choice))
    elif not any(name in fitting for name in chosen):
        problems += [_problem(misfit, partition=name, fitting=fitting) for name in chosen for misfit in found[name]]
    return problems


def _problem(misfit: Misfit, *, partition: str, fitting: Sequence[str]) -> Problem:
    others = (
        f"{'partition' if len(fitting) == 1 else 'partitions'} that would take it as it is: {', '.join(fitting)}"
        if fitting
        else "no partition would take it as it is"
    )
    fix = f"{misfit.allowed}; {others}." if misfit.allowed else f"{others}."
    return Problem(f"{misfit.key}: {misfit.what} (partition {partition}).", _NEVER, fix)


def _need(cluster: ClusterConfig, slurm: SlurmConfig) -> Need:
    tasks, gpus = cluster.tasks_per_node, slurm.num_gpus
    gres = parse_gres(slurm.gres or "")
    if gpus and not any(name == "gpu" for name, _ in gres):
        gres[("gpu", "")] = gpus
    cpus = slurm.cpus_per_gpu * gpus if slurm.cpus_per_gpu else tasks * (slurm.cpus_per_task or 1)
    memory = (slurm.mem_gb or 0) * 1024
    memory = _megabytes(slurm.mem_per_gpu) * gpus if slurm.mem_per_gpu else memory
    memory = _megabytes(slurm.mem_per_cpu) * cpus if slurm.mem_per_cpu else memory
    return Need(
        nodes=slurm.nodes,
        seconds=slurm.timeout_min * 60,
        cpus=cpus,
        memory_mb=round(memory),
        gres=gres,
        constraint=slurm.constraint,
        excluded=frozenset(host_names(slurm.exclude)) if slurm.exclude else frozenset(),
        named=tuple(host_names(slurm.nodelist)) if slurm.nodelist else (),
    )


def _with_environment(slurm: SlurmConfig) -> SlurmConfig:
    given: dict[str, str] = {}
    for name in SBATCH_VARIABLES:
        value = os.environ.get(f"SBATCH_{name.upper()}")
        if getattr(slurm, name) is None and value:
            given[name] = value
    return slurm.model_copy(update=given)


def _megabytes(text: str) -> float:
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    return int(match.group(1)) * _UNITS_MB[match.group(2) or "M"] if match else 0
