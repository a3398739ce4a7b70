"""The rules that accounting holds a user to: accounts, qualities of service and their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from supertrainer.config.cluster import SlurmConfig
from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import Problem
from supertrainer.launch.jobs import seconds_of
from supertrainer.launch.partitions import Partition, Rules, parse_tres

_REFUSED = "accounting is enforced on this cluster: SLURM refuses the job, or never starts it."


def account_problems(slurm: SlurmConfig, rules: Rules) -> Iterator[Problem]:
    """What accounting refuses in every partition: an account that isn't the user's, a QoS that it may not use."""
    rows = rules.associations
    if rows is not None and rules.enforced & {"associations", "limits", "safe", "qos", "wckeys", "all"}:
        accounts = sorted({row["Account"] for row in rows})
        if slurm.account and slurm.account not in accounts:
            fix = did_you_mean(slurm.account, accounts)
            yield Problem(f"cluster.slurm.account={slurm.account} is not one of yours.", _REFUSED, fix)
            return
        if not accounts:
            yield Problem("you have no account on this cluster.", _REFUSED, "ask its administrators for one.")
            return
    if slurm.qos and rules.qos is not None and slurm.qos not in rules.qos:
        fix = did_you_mean(slurm.qos, rules.qos)
        yield Problem(f"cluster.slurm.qos={slurm.qos}: there is no such quality of service.", _REFUSED, fix)
    elif slurm.qos and rows is not None and rules.enforced & {"qos", "safe", "all"}:
        account = slurm.account or rules.default_account
        mine = {name for row in rows if account in (None, row["Account"]) for name in row["QOS"].split(",") if name}
        if mine and slurm.qos not in mine:
            what = f"cluster.slurm.qos={slurm.qos} is not allowed for the account {account}."
            yield Problem(what, _REFUSED, did_you_mean(slurm.qos, mine))


def wall_and_size_misfits(
    rules: Rules,
    *,
    account: str | None,
    qos: str | None,
    partition: Partition,
    seconds: int,
    size: Mapping[str, int],
) -> Iterator[tuple[str, str, str]]:
    """What is more than one job may ever have: key, what is asked, what is allowed.

    Args:
        size: of the job: `node`, `cpu` and `gres/gpu`, over all its nodes.
    """
    if not rules.enforced & {"limits", "safe", "all"}:
        return
    rows = [
        row
        for row in rules.associations or ()
        if row["Account"] == account and row["Partition"] in ("", partition.name)
    ]
    if qos is None and rows:
        qos = rows[0]["DefaultQOS"] or None
    limits = {f"QoS {name}": (rules.qos or {}).get(name, {}) for name in (qos, partition.qos) if name}
    limits |= {f"account {account}": row for row in rows}
    for owner, row in limits.items():
        most_seconds = seconds_of(row.get("MaxWall", ""))
        if most_seconds is not None and seconds > most_seconds:
            most = most_seconds // 60
            what = f"{seconds // 60} min are asked for, the {owner} allows {most}"
            yield "cluster.slurm.timeout_min", what, f"cluster.slurm.timeout_min={most} at most"
        for limit in ("MaxTRES", "GrpTRES"):
            for name, most in parse_tres(row.get(limit, "")).items():
                if size.get(name, 0) > most:
                    key = "cluster.slurm.nodes" if name == "node" else "cluster.slurm"
                    label = {"node": "nodes", "cpu": "CPUs", "gres/gpu": "GPUs"}[name]
                    what = f"{size[name]} {label} are asked for in all, the {owner} allows {most}"
                    yield key, what, f"{most} {label} in all at most"
