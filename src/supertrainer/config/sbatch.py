"""Which options of sbatch a config may add, and which have a key of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OWN_KEYS: Mapping[str, str] = {
    "account": "slurm.account",
    "comment": "slurm.comment",
    "constraint": "slurm.constraint",
    "cpus-per-gpu": "slurm.cpus_per_gpu",
    "cpus-per-task": "slurm.cpus_per_task",
    "dependency": "slurm.dependency",
    "exclude": "slurm.exclude",
    "exclusive": "slurm.exclusive",
    "gpus-per-node": "slurm.gpus_per_node",
    "gpus-per-task": "slurm.gpus_per_task",
    "gres": "slurm.gres",
    "job-name": "slurm.job_name",
    "mail-type": "slurm.mail_type",
    "mail-user": "slurm.mail_user",
    "mem": "slurm.mem_gb",
    "mem-per-cpu": "slurm.mem_per_cpu",
    "mem-per-gpu": "slurm.mem_per_gpu",
    "no-requeue": "cluster.chain=N",
    "nodelist": "slurm.nodelist",
    "nodes": "slurm.nodes",
    "ntasks": "slurm.nodes and slurm.tasks_per_node",
    "ntasks-per-node": "slurm.tasks_per_node",
    "partition": "slurm.partition",
    "qos": "slurm.qos",
    "requeue": "cluster.chain=1",
    "reservation": "slurm.reservation",
    "signal": "slurm.signal_delay_s",
    "time": "slurm.timeout_min",
    "wckey": "slurm.wckey",
}
"""Options that a named key already gives."""

SCRIPTS_OWN: Mapping[str, str] = {
    "array": "a sweep's script writes it",
    "chdir": "the job starts where relative paths of its config start",
    "error": "both streams go to the run's one log",
    "export": "the script hands its environment on",
    "export-file": "the script hands its environment on",
    "open-mode": "a log goes on over restarts",
    "output": "the log lies in the run directory",
    "parsable": "the submit reads the job's number",
    "test-only": "nothing would be queued",
    "wait": "the submit returns at once",
    "wrap": "the script is what runs",
}
"""Options that only the script or the submit may set, with the reason."""

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")


def option_name(name: str) -> str:
    """An option as sbatch spells it: `mem_bind` and `mem-bind` are one."""
    return name.replace("_", "-")


def checked_parameters(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns `additional_parameters` unchanged.

    Raises:
        ValueError: a name that is no option, has a key of its own or is the script's; a value no #SBATCH line can hold.
    """
    for name, value in parameters.items():
        option = option_name(name)
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no long option of sbatch. Fix: its name without dashes, such as 'licenses'.")
        if option in OWN_KEYS:
            raise ValueError(f"{name} has a key of its own. Fix: {OWN_KEYS[option]}.")
        if option in SCRIPTS_OWN:
            raise ValueError(f"{name} can't be set: {SCRIPTS_OWN[option]}. Fix: leave it out.")
        if value is not None and not isinstance(value, str | int | float):
            raise ValueError(f"{name} is no text, number, true or false. Fix: write the value as sbatch takes it.")
        if isinstance(value, str) and (not value.strip() or any(sign in value for sign in "\n\r\0")):
            raise ValueError(f"{name}={value!r} is empty or holds a line break. Fix: one line; true for a flag.")
    return parameters
