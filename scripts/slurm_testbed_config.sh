# shellcheck shell=sh disable=SC2154 # a part of slurm_testbed.sh, which sets ROOT, PORT, NODES and the rest
# What the testbed's daemons read.

make_gpu() { # file; SLURM sets CUDA_VISIBLE_DEVICES and the like for character devices only: this one is /dev/null's
    [ -c "$1" ] || { rm -f "$1" && mknod "$1" c 1 3 2>/dev/null; } || : >"$1"
}

write_config() { # slurm.conf, gres.conf, slurmdbd.conf, environment; returns 0 if something that the daemons read has changed
    host=$(hostname -s)
    storage="AccountingStorageType=accounting_storage/none"
    [ "$ACCOUNTING" = 0 ] || storage="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((PORT + 1))
AccountingStoragePass=$MUNGE_SOCKET
AccountingStorageTRES=gres/gpu
# A wrong account or QOS is refused, as on most clusters
AccountingStorageEnforce=limits,qos"
    cat >"$ROOT/slurm.conf.new" <<CONF
ClusterName=testbed
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$PORT
AuthType=auth/munge
CredType=cred/munge
# A job that was requeued waits until its credential has ended: 120 seconds by default
AuthInfo=socket=$MUNGE_SOCKET,cred_expire=5
StateSaveLocation=$ROOT/state
SlurmdSpoolDir=$ROOT/spool.%n
SlurmctldPidFile=$ROOT/pid/slurmctld
SlurmdPidFile=$ROOT/pid/slurmd.%n
SlurmctldLogFile=$ROOT/log/slurmctld
SlurmdLogFile=$ROOT/log/slurmd.%n
$storage
# No cgroups: a process tree is followed through /proc, and memory is polled
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
JobAcctGatherParams=OverMemoryKill,UsePss
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
GresTypes=gpu
DefMemPerCPU=2000
MaxArraySize=1001
# Nodes may claim more than this machine has
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# A preempted job gets the signal that it asked for (--signal) when its grace begins
SlurmctldParameters=preempt_send_user_signal
JobRequeue=1
OverTimeLimit=0
KillWait=5
MinJobAge=$MIN_JOB_AGE
SlurmctldTimeout=10
SlurmdTimeout=10
MessageTimeout=5
TCPTimeout=1
UnkillableStepTimeout=20
InactiveLimit=0
# A node that was lost is taken back as soon as its daemon registers
ReturnToService=2
MailProg=/bin/true
CONF
    : >"$ROOT/gres.conf.new"
    number=0
    for node in $NODES; do
        number=$((number + 1))
        kind=nvidia
        [ "$number" -lt "$NODE_COUNT" ] || kind=amd
        echo "NodeName=$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$((PORT + 10 + number)) CPUs=4 RealMemory=8000 Gres=gpu:fake:4 Feature=$kind" >>"$ROOT/slurm.conf.new"
        echo "NodeName=$node Name=gpu Type=fake File=$ROOT/gpus/$node.[0-3] Flags=${kind}_gpu_env" >>"$ROOT/gres.conf.new"
        mkdir -p "$ROOT/spool.$node"
        for gpu in 0 1 2 3; do make_gpu "$ROOT/gpus/$node.$gpu"; done
    done
    # One tier for all but high: only high preempts
    cat >>"$ROOT/slurm.conf.new" <<CONF
PartitionName=dev           Nodes=ALL Default=YES MaxTime=00:30:00 MaxNodes=2 DefaultTime=00:10:00 PriorityTier=1 PreemptMode=OFF
PartitionName=main          Nodes=ALL MaxTime=2-00:00:00 DefaultTime=00:30:00 PriorityTier=1 PreemptMode=OFF
PartitionName=preempt       Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:30:00 PriorityTier=1 PreemptMode=REQUEUE GraceTime=0
PartitionName=preempt_grace Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:30:00 PriorityTier=1 PreemptMode=REQUEUE GraceTime=$GRACE
PartitionName=high          Nodes=ALL MaxTime=1-00:00:00 DefaultTime=00:30:00 PriorityTier=100 PreemptMode=OFF
CONF
    cat >"$ROOT/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$MUNGE_SOCKET
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((PORT + 1))
SlurmUser=root
PidFile=$ROOT/pid/slurmdbd
LogFile=$ROOT/log/slurmdbd
StorageType=accounting_storage/mysql
StorageLoc=slurm_acct_db
StorageUser=root
CONF
    chmod 600 "$ROOT/slurmdbd.conf"
    # slurmd wants to know the kind of cgroups, though nothing here uses them; v1 is not looked up in /sys
    echo "CgroupPlugin=cgroup/v1" >"$ROOT/cgroup.conf"
    echo "export SLURM_CONF=$SLURM_CONF" >"$ROOT/environment"
    changed=1
    for file in slurm.conf gres.conf; do
        cmp -s "$ROOT/$file.new" "$ROOT/$file" || changed=0
        mv "$ROOT/$file.new" "$ROOT/$file"
    done
    return $changed
}
