"""The #SBATCH lines of a job's script: what is asked of SLURM, each with its reason where the name doesn't tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from supertrainer.config.cluster import ClusterConfig, SlurmConfig
from supertrainer.config.sbatch import option_name

_NAMED = (
    "partition",
    "account",
    "qos",
    "reservation",
    "wckey",
    "constraint",
    "nodelist",
    "exclude",
    "gres",
    "comment",
    "dependency",
    "mail_type",
    "mail_user",
)


def directive(name: str, value: Any = True, *, why: str = "") -> str:
    """One #SBATCH line. SLURM's own parser reads it, not a shell: quotes and backslashes only, `#` begins a comment."""
    text = "" if value is True else f"={quoted(str(value))}"
    line = f"#SBATCH --{name}{text}"
    return f"{line}  # {why}" if why else line


def quoted(value: str) -> str:
    """A value as SLURM's parser of #SBATCH lines takes it."""
    if value and not any(sign.isspace() or sign in "\"'\\#" for sign in value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def log_pattern(directory: Path, name: str) -> str:
    """A file name for `--output`: SLURM fills in `%` patterns in `name` only, whatever the directory is called."""
    return str(directory).replace("%", "%%") + f"/{name}"


def resource_directives(cluster: ClusterConfig) -> Iterator[str]:
    """What a job asks for, and how it is told to save."""
    slurm = cluster.slurm
    by_torchrun = cluster.processes == "torchrun"
    yield directive("nodes", slurm.nodes)
    yield directive(
        "ntasks-per-node",
        1 if by_torchrun else cluster.tasks_per_node,
        why=f"one torchrun, which starts {cluster.tasks_per_node}" if by_torchrun else "one per process",
    )
    yield from _shares(cluster)
    yield directive("time", slurm.timeout_min, why="minutes; the run goes on in another start")
    for name in _NAMED:
        value = vars(slurm)[name]
        if value is not None:
            yield directive(option_name(name), value)
    if slurm.exclusive:
        yield directive("exclusive")
    for name, value in slurm.additional_parameters.items():
        if value is not None and value is not False:
            yield directive(option_name(name), value)
    yield directive(
        "signal",
        f"{'' if slurm.use_srun else 'B:'}USR1@{slurm.signal_delay_s}",
        why=f"seconds before the limit, to save; {'every process gets it' if slurm.use_srun else 'to this script'}",
    )
    if cluster.chain > 1:
        yield directive("no-requeue", why="requeueing is forbidden here: the next job of the chain goes on")
    else:
        yield directive("requeue", why="after a preemption or a node's failure the run goes on")


def _shares(cluster: ClusterConfig) -> Iterator[str]:
    """Shares of a node: CPUs, GPUs, memory."""
    slurm = cluster.slurm
    if slurm.cpus_per_task is not None:
        by_torchrun = cluster.processes == "torchrun"
        cpus = slurm.cpus_per_task * (cluster.tasks_per_node if by_torchrun else 1)
        yield directive("cpus-per-task", cpus, why="of all the node's processes" if by_torchrun else "")
    if slurm.num_gpus and slurm.gres is None:
        # Not --gpus-per-task: it hides the other GPUs of the node from each task, and they talk to each other.
        yield directive("gpus-per-node", slurm.num_gpus, why="each process chooses its own")
    if slurm.cpus_per_gpu is not None:
        yield directive("cpus-per-gpu", slurm.cpus_per_gpu)
    if slurm.mem_gb is not None:
        yield directive("mem", memory(slurm), why="of each node" if slurm.mem_gb else "0: all that a node has")
    if slurm.mem_per_gpu is not None:
        yield directive("mem-per-gpu", slurm.mem_per_gpu)
    if slurm.mem_per_cpu is not None:
        yield directive("mem-per-cpu", slurm.mem_per_cpu)


def memory(slurm: SlurmConfig) -> str:
    """`mem_gb` as SLURM writes it, which knows whole numbers only."""
    gib = slurm.mem_gb or 0
    if gib == 0:
        return "0"
    return f"{int(gib)}G" if gib == int(gib) else f"{max(int(gib * 1024), 1)}M"
