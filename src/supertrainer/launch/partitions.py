"""What a cluster has: partitions, nodes, and the rules that accounting holds a user to."""

from __future__ import annotations

import getpass
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from supertrainer.core.errors import LaunchError
from supertrainer.launch.jobs import seconds_of
from supertrainer.launch.slurm import slurm

log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class Partition:
    """A queue with its rules. None: no limit. `fields` are SLURM's own words."""

    name: str
    is_default: bool
    state: str
    max_seconds: int | None
    max_nodes: int | None
    min_nodes: int
    max_cpus_per_node: int | None
    max_memory_mb: int | None
    qos: str | None
    fields: Mapping[str, str]

    def allows(self, kind: str, name: str) -> bool:
        """Whether an account, group or QoS (`kind`: Accounts, Groups or Qos) may use it."""
        allowed, denied = self.fields.get(f"Allow{kind}", "ALL"), self.fields.get(f"Deny{kind}", "")
        return (allowed == "ALL" or name in allowed.split(",")) and name not in denied.split(",")

    def allowed(self, kind: str) -> str:
        """Those that may use it, for a message."""
        allowed = self.fields.get(f"Allow{kind}", "ALL")
        return allowed if allowed != "ALL" else f"all but {self.fields.get(f'Deny{kind}', 'none')}"


@dataclass(frozen=True)
class Node:
    """A machine. `gres` counts generic resources by (name, type), such as ("gpu", "a100")."""

    name: str
    partitions: frozenset[str]
    cpus: int
    memory_mb: int
    features: frozenset[str]
    gres: Mapping[tuple[str, str], int]

    def count(self, name: str, kind: str | None = None) -> int:
        """How many of a generic resource it has, of one type or of all."""
        return sum(number for (its, type_), number in self.gres.items() if its == name and kind in (None, type_))


@dataclass(frozen=True)
class Rules:
    """What accounting enforces, as far as its programs answer. `enforced` is AccountingStorageEnforce's words.

    Attributes:
        associations: a row per account of the user's: Account, Partition, QOS, DefaultQOS, MaxWall.
        qos: a row per quality of service: Name, MaxWall, MaxTRES, GrpTRES, Flags. None: unknown.
        default_account: the user's.
    """

    enforced: frozenset[str] = frozenset()
    associations: tuple[Mapping[str, str], ...] | None = None
    qos: Mapping[str, Mapping[str, str]] | None = None
    default_account: str | None = None


def read_partitions() -> dict[str, Partition]:
    """Every partition by name; empty where there is nothing to ask."""
    found = {}
    for fields in _records(_ask(lambda: slurm("scontrol", "--all", "--oneliner", "show", "partition"), "")):
        qos = fields.get("QoS", "N/A")
        found[fields["PartitionName"]] = Partition(
            name=fields["PartitionName"],
            is_default=fields.get("Default") == "YES",
            state=fields.get("State", "UP"),
            max_seconds=seconds_of(fields.get("MaxTime", "")),
            max_nodes=_number(fields.get("MaxNodes")),
            min_nodes=_number(fields.get("MinNodes")) or 0,
            max_cpus_per_node=_number(fields.get("MaxCPUsPerNode")),
            max_memory_mb=_number(fields.get("MaxMemPerNode")),
            qos=None if qos in ("N/A", "(null)", "") else qos,
            fields=fields,
        )
    return found


def read_nodes() -> list[Node]:
    """Every node, down or drained ones too: they come back. Empty where there is nothing to ask."""
    return [
        Node(
            name=fields["NodeName"],
            partitions=frozenset(fields.get("Partitions", "").split(",")),
            cpus=_number(fields.get("CPUEfctv")) or _number(fields.get("CPUTot")) or 0,
            memory_mb=(_number(fields.get("RealMemory")) or 0) - (_number(fields.get("MemSpecLimit")) or 0),
            features=frozenset(fields.get("AvailableFeatures", "").split(",")),
            gres=parse_gres(fields.get("Gres", "")),
        )
        for fields in _records(_ask(lambda: slurm("scontrol", "--all", "--oneliner", "show", "node"), ""))
    ]


def read_rules() -> Rules:
    """What accounting holds this user to; rules that nobody answers for are left open."""
    config = _ask(lambda: slurm("scontrol", "show", "config"), "")
    match = re.search(r"^AccountingStorageEnforce\s*=\s*(\S+)", config, re.MULTILINE)
    enforced = frozenset(match.group(1).split(",")) - {"none"} if match else frozenset()
    if not enforced:
        return Rules()  # any account and QoS is taken, none limits anything
    user = getpass.getuser()
    match = re.search(r"^ClusterName\s*=\s*(\S+)", config, re.MULTILINE)  # one database may serve several
    here = [f"cluster={match.group(1)}"] if match else []
    associations = _sacctmgr("association", "Account,Partition,QOS,DefaultQOS,MaxWall", f"user={user}", *here)
    qos = _sacctmgr("qos", "Name,MaxWall,MaxTRES,GrpTRES,Flags")
    users = _sacctmgr("user", "User,DefaultAccount", f"name={user}")
    return Rules(
        enforced=enforced,
        associations=None if associations is None else tuple(associations),
        qos=None if qos is None else {row["Name"]: row for row in qos},
        default_account=users[0]["DefaultAccount"] if users else None,
    )


def host_names(expression: str) -> list[str]:
    """The names behind `n[1-2,7]`; the expression itself where it can't be expanded."""
    return _ask(lambda: slurm("scontrol", "show", "hostnames", expression).split(), [expression])


def parse_gres(text: str) -> dict[tuple[str, str], int]:
    """`gpu:a100:4(S:0-1),nvme:2` as {("gpu", "a100"): 4, ("nvme", ""): 2}; a bare name counts 1."""
    counts: dict[tuple[str, str], int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        name, *rest = part.strip().removeprefix("gres/").removeprefix("gres:").replace("=", ":").split(":")
        number = int(rest.pop()) if rest and rest[-1].isdecimal() else 1
        if name:
            key = (name, rest[0] if rest else "")
            counts[key] = counts.get(key, 0) + number
    return counts


def parse_tres(text: str) -> dict[str, int]:
    """`cpu=8,gres/gpu=4,node=2` as numbers; what has a unit, such as memory, is left out."""
    pairs = [part.partition("=") for part in text.split(",")]
    return {
        name: int(number) for name, _, number in pairs if number.isdecimal() and name in ("cpu", "gres/gpu", "node")
    }


def _records(text: str) -> list[dict[str, str]]:
    """One mapping per line of `KEY=VALUE …`; the first of equal keys holds: comments by people come last."""
    records = []
    for line in text.splitlines():
        fields: dict[str, str] = {}
        for key, value in re.findall(r"(?:^|\s)([A-Za-z][\w/]*)=(\S*)", line):
            fields.setdefault(key, value)
        if "PartitionName" in fields or "NodeName" in fields:
            records.append(fields)
    return records


def _sacctmgr(entity: str, columns: str, *conditions: str) -> list[dict[str, str]] | None:
    where = ["where", *conditions] if conditions else []
    arguments = ("--noheader", "--parsable2", "show", entity, *where, f"format={columns}")
    text = _ask(lambda: slurm("sacctmgr", *arguments), None)
    if text is None:
        return None
    names = columns.split(",")
    return [dict(zip(names, line.split("|"), strict=False)) for line in text.splitlines() if "|" in line]


def _number(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match.group()) if match else None


def _ask(question: Callable[[], _T], otherwise: _T) -> _T:
    """The answer; `otherwise` where SLURM's programs or servers are absent: nobody is refused for that."""
    try:
        return question()
    except LaunchError as error:
        log.debug("%s", error)
        return otherwise
