"""A made-up cluster, in the words of SLURM 22.05.8's scontrol."""

from supertrainer.config.cluster import ClusterConfig, SlurmConfig
from supertrainer.launch.limits import limit_problems

PARTITION = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts={accounts} AllowQos={qos_list} AllocNodes=ALL "
    "Default={default} QoS={qos} DefaultTime=00:10:00 DisableRootJobs=NO Hidden=NO MaxNodes={nodes} MaxTime={time} "
    "MinNodes={min_nodes} LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[1-9] RootOnly=NO PreemptMode=OFF State={state} "
    "JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode={memory} TRES=cpu=8,mem=16000M,node=2"
)
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv={cpus} CPUTot=64 CPULoad=1.39 "
    "AvailableFeatures={features} ActiveFeatures={features} Gres={gres} NodeAddr=10.0.0.1 OS=Linux 6.1 #1 SMP @0  "
    "RealMemory={memory} AllocMem=0 State=IDLE ThreadsPerCore=1 TmpDisk=0 Partitions={partitions}  "
    "CfgTRES=cpu=4,mem=8000M,gres/gpu=8 Reason=fan Gres=none [root@2026-11-30T12:00:00] Comment=CPUEfctv=1"
)
RULES = {
    "accounts": "ALL", "qos_list": "ALL", "default": "NO", "qos": "N/A", "nodes": "UNLIMITED", "time": "UNLIMITED",
    "min_nodes": "0", "state": "UP", "memory": "UNLIMITED",
}  # fmt: skip
GPU_NODES = {"cpus": 56, "features": "amd,mi250", "gres": "gpu:mi250:8(S:0-3)", "memory": 491520}
CPU_NODES = {"cpus": 128, "features": "cpu", "gres": "(null)", "memory": 245760}


def answer(programs, rules, nodes, *, enforced="none"):
    """Lets scontrol tell of partitions, nodes and what accounting enforces."""
    partitions = "".join(PARTITION.format(**rule) + "\n" for rule in rules)
    programs.add("scontrol", stdout=partitions, when="show partition")
    programs.add("scontrol", stdout="".join(NODE.format(**node) + " \n" for node in nodes), when="show node")
    programs.add(
        "scontrol",
        stdout=f"AccountingStorageEnforce = {enforced}\nClusterName             = lumi\n",
        when="show config",
    )
    programs.add("scontrol", stdout="g3\ng4\n", when="hostnames g[3-4]")


def problems(**slurm):
    """What and fix of each problem of a cluster config with these SLURM parameters."""
    return [(problem.what, problem.fix) for problem in limit_problems(ClusterConfig(slurm=SlurmConfig(**slurm)))]
