#!/bin/sh
# A SLURM of a few small nodes on this one machine, for tests: real daemons, made-up GPUs, no systemd, no cgroups. It has
# its own configuration, ports, accounts and munge, so it may stand beside another SLURM, which it never touches.
#
#   install      the Debian packages that it needs
#   up           start what doesn't run; a changed setting restarts controller and nodes, jobs go on
#   down         cancel its jobs, stop its daemons; job ids and accounting stay for the next `up`
#   status       what runs; the exit code is 0 where the controller answers
#   kill NODE    as when a node loses power: its daemon and all its job processes, with SIGKILL
#   revive NODE  start the node again
#
# Settings, from the environment:
#   SUPERTRAINER_SLURM_ROOT  state, logs, slurm.conf and `environment`, a file for a shell to source (/tmp/supertrainer-slurm)
#   SUPERTRAINER_SLURM_PORT  the first of 32 ports (18800)
#   SLURM_ACCOUNTING         1: slurmdbd and MariaDB, so that sacct answers; 0: neither (1)
#   SLURM_MIN_JOB_AGE        seconds for which squeue and scontrol remember an ended job (3600)
#   SLURM_GRACE              seconds between SIGTERM and the end in the partition preempt_grace (60)
#
# Nodes testbed1 … testbed4, 4 CPUs, 8000 MB and 4 GPUs (gpu:fake) each; the last has the feature amd, the others nvidia.
# Partitions: dev (the default; 30 minutes, 2 nodes), main, preempt (no grace), preempt_grace; high preempts the last two.
set -eu

ROOT=${SUPERTRAINER_SLURM_ROOT:-/tmp/supertrainer-slurm}
PORT=${SUPERTRAINER_SLURM_PORT:-18800}
ACCOUNTING=${SLURM_ACCOUNTING:-1}
MIN_JOB_AGE=${SLURM_MIN_JOB_AGE:-3600}
GRACE=${SLURM_GRACE:-60}
NODES="testbed1 testbed2 testbed3 testbed4"
NODE_COUNT=4
MUNGE_SOCKET=$ROOT/munge/socket
MARIADB_SOCKET=$ROOT/mariadb/socket
# -core: programs alone, no service that starts itself
PACKAGES="slurmctld slurmd slurm-client munge slurmdbd mariadb-server-core mariadb-client-core"

unset SLURM_CLUSTERS SLURM_CONF_SERVER # of another cluster
export SLURM_CONF="$ROOT/slurm.conf"
PATH=$PATH:/usr/sbin:/sbin
# shellcheck source=scripts/slurm_testbed_config.sh
. "$(dirname "$0")/slurm_testbed_config.sh"

say() { printf 'slurm_testbed: %s\n' "$1"; }

warn() { # what, why, fix
    printf 'slurm_testbed: %s\n  Why: %s\n  Fix: %s\n' "$1" "$2" "$3" >&2
}

fail() {
    warn "$@"
    exit 2
}

need_root() {
    [ "$(id -u)" = 0 ] || fail "$1 needs root, and this is $(id -un)." \
        "$2" "sudo -E $0 $1; or do it in a container, where you are root."
}

is_alive() { # daemon
    pid=$(cat "$ROOT/pid/$1" 2>/dev/null) && [ -n "$pid" ] && grep -qs "^State:[[:space:]]*[^ZX]" "/proc/$pid/status" &&
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF "${1%%.*}" # a number may have gone on to another program
}

wait_until() { # seconds, what, log, then the command that must succeed
    seconds=$1 what=$2 log=$3
    shift 3
    tries=$((seconds * 5))
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        if [ "$tries" -le 0 ]; then
            tail -n 20 "$log" >&2 || true # the daemons themselves say nothing on a terminal
            fail "$what in $seconds seconds." "the last lines of $log stand above." "mend what they name, then start again."
        fi
        sleep 0.2
    done
}

stop() { # daemon; the name of its pid file
    if is_alive "$1"; then
        kill "$pid"
        tries=50
        while is_alive "$1"; do
            tries=$((tries - 1))
            [ "$tries" -gt 0 ] || { kill -9 "$pid" 2>/dev/null || true; break; }
            sleep 0.1
        done
    fi
    rm -f "$ROOT/pid/$1"
}

missing_programs() { # prints those that `up` starts and that are not here
    programs="slurmctld slurmd scontrol squeue munged"
    [ "$ACCOUNTING" = 0 ] || programs="$programs slurmdbd sacctmgr mariadbd mariadb-install-db mariadb"
    for program in $programs; do
        command -v "$program" >/dev/null || echo "$program"
    done
}

install_packages() {
    ACCOUNTING=1
    [ -n "$(missing_programs)" ] || { say "installed already"; return; }
    command -v apt-get >/dev/null || fail "there is no apt-get here." "this script knows the packages of Debian and Ubuntu only." \
        "install slurmctld, slurmd, slurmdbd, SLURM's commands, munge and MariaDB as your system does, then: $0 up"
    need_root install "apt-get writes to the system."
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update || say "apt-get update failed; going on with the lists that are here"
    # shellcheck disable=SC2086 # a list of words
    apt-get -q install -y --no-install-recommends $PACKAGES
}

check_settings() {
    need_root up "slurmd starts jobs as their owners, and node names go into /etc/hosts."
    case $ACCOUNTING in 0 | 1) ;; *) fail "SLURM_ACCOUNTING=$ACCOUNTING is neither 0 nor 1." "it says whether sacct has a database." "SLURM_ACCOUNTING=1" ;; esac
    case $ROOT in
    *[!A-Za-z0-9/._-]* | [!/]*) fail "SUPERTRAINER_SLURM_ROOT=$ROOT is no absolute path of plain characters." "slurm.conf has no quotes." "SUPERTRAINER_SLURM_ROOT=/tmp/supertrainer-slurm" ;;
    esac
    # shellcheck disable=SC2005,SC2046 # lines to words
    missing=$(echo $(missing_programs))
    [ -z "$missing" ] || fail "not installed: $missing." "the testbed starts SLURM's own daemons." \
        "$0 install (within a minute, about 200 MB)$([ "$ACCOUNTING" = 0 ] || echo '; SLURM_ACCOUNTING=0 does without the database')"
}

name_nodes() { # the first node's name is MASTER_ADDR of a run over several
    for node in $NODES; do
        getent ahostsv4 "$node" 2>/dev/null | grep -q '^127\.' && continue
        if ! { echo "127.0.0.1 $node" >>/etc/hosts; } 2>/dev/null; then
            warn "/etc/hosts can't be written: $node does not resolve." "a run over several nodes meets at the first node's name." \
                "add '127.0.0.1 $NODES' to /etc/hosts; until then only runs on one node work."
            return
        fi
    done
}

start_munge() { # its own, with a key of its own
    is_alive munged && return
    if [ ! -s "$ROOT/munge/key" ]; then
        (umask 077 && head -c 128 /dev/urandom >"$ROOT/munge/key")
    fi
    rm -f "$MUNGE_SOCKET" "$MUNGE_SOCKET.lock"
    munged --socket="$MUNGE_SOCKET" --key-file="$ROOT/munge/key" --pid-file="$ROOT/pid/munged" --log-file="$ROOT/log/munged" \
        --seed-file="$ROOT/munge/seed" --origin=127.0.0.1 </dev/null >>"$ROOT/log/munged.out" 2>&1 || true
    wait_until 10 "munged did not answer" "$ROOT/log/munged.out" munge --socket="$MUNGE_SOCKET" --no-input
}

start_accounting() {
    if ! is_alive mariadbd; then
        if [ ! -d "$ROOT/mariadb/data/mysql" ]; then
            printf '[mysqld]\nuser=root\ndatadir=%s\nsocket=%s\nskip-networking\npid-file=%s\n%s\n' \
                "$ROOT/mariadb/data" "$MARIADB_SOCKET" "$ROOT/pid/mariadbd" \
                "innodb-buffer-pool-size=64M
innodb-log-file-size=16M
innodb-lock-wait-timeout=900
innodb-flush-log-at-trx-commit=0" >"$ROOT/mariadb/my.cnf"
            say "making the accounting database"
            mariadb-install-db --defaults-file="$ROOT/mariadb/my.cnf" --auth-root-authentication-method=socket --skip-test-db \
                >"$ROOT/log/mariadb-install" 2>&1 || wait_until 0 "mariadb-install-db failed" "$ROOT/log/mariadb-install" false
        fi
        setsid mariadbd --defaults-file="$ROOT/mariadb/my.cnf" </dev/null >>"$ROOT/log/mariadbd" 2>&1 &
        wait_until 60 "MariaDB did not answer" "$ROOT/log/mariadbd" sql "create database if not exists slurm_acct_db"
    fi
    is_alive slurmdbd || MYSQL_UNIX_PORT=$MARIADB_SOCKET slurmdbd </dev/null >>"$ROOT/log/slurmdbd.out" 2>&1 || true
    wait_until 60 "slurmdbd did not answer" "$ROOT/log/slurmdbd" sacctmgr -n show cluster
    [ -z "$(sacctmgr -n show assoc account=testbed user=root format=user)" ] || return 0
    for words in "cluster testbed" "qos short MaxWall=00:10:00" "account testbed qos=normal,short" "user root account=testbed defaultaccount=testbed"; do
        # shellcheck disable=SC2086 # a list of words
        sacctmgr -i add $words >>"$ROOT/log/sacctmgr" 2>&1 || true # a part may be there, of an `up` that was broken off
    done
}

sql() { mariadb --no-defaults --socket="$MARIADB_SOCKET" -e "$1"; }

start_node() {
    is_alive "slurmd.$1" || (unset SLURM_ACCOUNTING && slurmd -N "$1" </dev/null >>"$ROOT/log/slurmd.$1.out" 2>&1) || true
}

controller_answers() { timeout 10 scontrol ping 2>/dev/null | grep -q UP; }

is_up() { sinfo -h -N -n "$1" -t idle,mixed,allocated,completing -o %N | grep -q .; } # node

up() {
    check_settings
    mkdir -p "$ROOT/log" "$ROOT/pid" "$ROOT/state" "$ROOT/gpus" "$ROOT/munge" "$ROOT/mariadb"
    chmod 755 "$ROOT" "$ROOT/munge"
    name_nodes
    if write_config && is_alive slurmctld; then
        say "the settings have changed: controller and nodes start again"
        for node in $NODES; do stop "slurmd.$node"; done
        stop slurmctld
    fi
    start_munge
    if [ "$ACCOUNTING" = 1 ]; then
        start_accounting
    else
        stop slurmdbd
        stop mariadbd
    fi
    is_alive slurmctld || slurmctld </dev/null >>"$ROOT/log/slurmctld.out" 2>&1 || true
    wait_until 30 "slurmctld did not answer" "$ROOT/log/slurmctld" controller_answers
    for node in $NODES; do start_node "$node"; done
    for node in $NODES; do wait_until 30 "$node did not come up" "$ROOT/log/slurmd.$node" is_up "$node"; done
    say "up: $NODE_COUNT nodes, accounting $([ "$ACCOUNTING" = 1 ] && echo on || echo off). In a shell: . $ROOT/environment"
}

is_of_node() { # process, node: is it slurmd's shepherd of a job step there, or a process of the step itself?
    case $(readlink "/proc/$1/fd/"* 2>/dev/null) in *"$ROOT/log/slurmd.$2"*)
        return 0 ;;
    esac
    { tr '\0' '\n' <"/proc/$1/environ"; } 2>/dev/null | grep -xcF -e "SLURMD_NODENAME=$2" -e "SLURM_CONF=$SLURM_CONF" | grep -qx 2
}

kill_processes() { # node; shepherds first, so that they can't report the end of the others
    for round in 1 2 3; do # what was born in between
        found=
        for pid in $(grep -lsx slurmstepd /proc/[0-9]*/comm | cut -d / -f 3) \
            $(grep -lszxF "SLURMD_NODENAME=$1" /proc/[0-9]*/environ | cut -d / -f 3); do
            if is_of_node "$pid" "$1"; then
                found=$round
                kill -9 "$pid" 2>/dev/null || true
            fi
        done
        [ -n "$found" ] || return 0
    done
}

kill_node() {
    if is_alive "slurmd.$1"; then kill -9 "$pid"; fi
    rm -f "$ROOT/pid/slurmd.$1"
    kill_processes "$1"
}

revive_node() {
    start_node "$1"
    wait_until 30 "$1 did not come up" "$ROOT/log/slurmd.$1" is_up "$1"
}

down() {
    if is_alive slurmctld && controller_answers; then
        jobs=$(timeout 10 squeue -h -o %A | sort -u)
        # shellcheck disable=SC2086 # a list of words
        [ -z "$jobs" ] || timeout 20 scancel $jobs || true
        tries=50
        while [ "$tries" -gt 0 ] && timeout 10 squeue -h 2>/dev/null | grep -q .; do
            tries=$((tries - 1))
            sleep 0.2
        done
    fi
    for node in $NODES; do
        stop "slurmd.$node"
        kill_processes "$node" # what did not end in those seconds
    done
    for daemon in slurmctld slurmdbd mariadbd munged; do stop "$daemon"; done
    rm -f "$ROOT/environment"
    say "down"
}

status() {
    for daemon in munged mariadbd slurmdbd slurmctld $(for node in $NODES; do echo "slurmd.$node"; done); do
        printf '%-16s %s\n' "$daemon" "$(is_alive "$daemon" && echo "runs, process $pid" || echo "does not run")"
    done
    is_alive slurmctld && controller_answers || return 1
    sinfo
    squeue -a
}

known_node() { # command, node
    need_root "$1" "it ends and starts root's processes."
    case " $NODES " in *" ${2:-} "*) ;; *) fail "there is no node '${2:-}'." "$1 takes one node." "$0 $1 NODE, with one of: $NODES" ;; esac
    [ -f "$ROOT/environment" ] || fail "the testbed is not up." "$1 is for one of its nodes." "$0 up"
}

case ${1:-} in
install) install_packages ;;
up) up ;;
down)
    need_root down "it ends root's processes."
    down
    ;;
status) status ;;
kill)
    known_node kill "${2:-}"
    kill_node "$2"
    ;;
revive)
    known_node revive "${2:-}"
    revive_node "$2"
    ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n '4,11p' >&2
    exit 2
    ;;
esac
