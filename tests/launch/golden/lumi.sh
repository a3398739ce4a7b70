#!/bin/bash
# A job of the run train_bert-1234abcd, written by supertrainer VERSION.
#     sbatch /runs/train_bert-1234abcd/slurm.sh
# starts it, and goes on from its newest checkpoint where it has begun; by hand too.
#SBATCH --job-name=train_bert-1234abcd
#SBATCH --chdir=/home/me/project
#SBATCH --output=/runs/train_bert-1234abcd/logs/slurm-%j.out
#SBATCH --open-mode=append  # a requeued job goes on in its log
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8  # one per process
#SBATCH --cpus-per-task=7
#SBATCH --gpus-per-node=8  # each process chooses its own
#SBATCH --mem=480G  # of each node
#SBATCH --time=720  # minutes; the run goes on in another start
#SBATCH --partition=standard-g
#SBATCH --account=project_1
#SBATCH --signal=USR1@120  # seconds before the limit, to save; every process gets it
#SBATCH --requeue  # after a preemption or a node's failure the run goes on

set -u  # a name without a value ends the script
trap : TERM USR1  # SLURM may signal this shell as well: it lives to see how the run ends

run=/runs/train_bert-1234abcd
job=${SLURM_JOB_ID:?is set in a job: start this script with sbatch}
# The last task of an array has the array's own number: only A_I is this task alone.
if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi
restart=${SLURM_RESTART_COUNT:-0}

say() { echo "slurm.sh: $*"; }

# A line in jobs.jsonl, for whoever asks how the run is. $1: the event, $2: what else there is to it, in JSON.
record() {
    local file=$run/jobs.jsonl now
    now=$(date -u +%Y-%m-%dT%H:%M:%S+00:00)
    if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then echo >> "$file"; fi  # a kill tore the last line off
    printf '{"event":"%s","time":"%s","job_id":"%s","restart":%d,%s}\n' "$1" "$now" "$job" "$restart" "$2" >> "$file"
}

cd /home/me/project || exit 1
wish=$run/requeue-$job.json  # written where the run wants to go on after this start
rm -f "$wish"  # the last start's
# However the script ends, it says so: a setup line may end it, or a name without a value.
ended=false
# shellcheck disable=SC2329  # the trap calls it
on_exit() {
    local last=$?
    if [ "$ended" = true ]; then return; fi
    say "error: this script ended with $last before the run did."
    record end "\"exit_code\":$last,\"requeued\":false"
}
trap on_exit EXIT
record start "\"nodes\":\"$SLURM_JOB_NODELIST\""

# What may be left of the submitting shell: another run's place, and the GPUs of one node, which srun would
# hand on to all nodes.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
unset CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ZE_AFFINITY_MASK

# Without its setup the run would fail later, and less clearly. $1: an exit code, $2: the setting.
check() {
    [ "$1" -eq 0 ] && return
    say "error: $2 ended with $1. Where that is no fault, let the line end in '|| true'."
    exit 1
}

set +u  # modules and activation scripts use names without a value
# where the modules of the AI containers are
module use /appl/local/laifs/modules
check $? 'cluster.site.setup[0]'
# mounts the file systems and the network's libraries into the container
module load lumi-aif-singularity-bindings
check $? 'cluster.site.setup[1]'
set -u

# vendor: amd
# MIOpen's database of tuned kernels; SQLite needs file locks, which shared file systems lack or make slow
export MIOPEN_USER_DB_PATH="/tmp/miopen-$SLURM_JOB_ID"
# MIOpen's compiled kernels, on the node for the same reason
export MIOPEN_CUSTOM_CACHE_DIR="/tmp/miopen-$SLURM_JOB_ID"

# fabric: slingshot
# first connections go over the high-speed interfaces; the others don't join the compute nodes
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
# gloo's connections take the same network
export GLOO_SOCKET_IFNAME=hsn0
# GPUs and network cards at the same host bridge exchange data without a copy in host memory
export NCCL_NET_GDR_LEVEL=PHB
# a completion queue long enough for collectives of many ranks
export FI_CXI_DEFAULT_CQ_SIZE=131072

# Where the processes meet: on the first node, at a port of the job's own.
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))
export MASTER_ADDR MASTER_PORT
export PYTHONPATH=/runs/.code/0123456789abcdef${PYTHONPATH:+:$PYTHONPATH}  # the code that was submitted
export PYTHONUNBUFFERED=1  # a killed run's last words reach the log
export SUPERTRAINER_JOB=$job  # this script waits, and requeues the job where the run asks for it
export HF_HUB_OFFLINE=1  # everything was fetched before the submit
cpus=7  # of one process
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}

command=(
    srun
    --kill-on-bad-exit=1  # without it the others wait for ever for one that died
    --export=ALL  # what is exported above
    --nodes=2 --ntasks=16 --ntasks-per-node=8
    --cpus-per-task="$cpus"  # a step has one CPU a task, whatever the job has
    '--cpu-bind=mask_cpu:0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,0x00000000fe000000,0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000'
    sh -c "trap '' USR1; exec \"\$@\"" sh  # the signal to save harms no process that isn't ready for it
    singularity run
    --bind /home/me/project
    --bind /runs/train_bert-1234abcd
    --bind /runs/.code/0123456789abcdef
    --pwd /home/me/project
    /images/torch.sif
    python3
    /runs/.code/0123456789abcdef/supertrainer/main.py
    config=/runs/train_bert-1234abcd
    'allow_targets=[mine]'
)

"${command[@]}"
code=$?

# $1: the exit code, $2: whether the job is to be requeued.
finish() { ended=true; record end "\"exit_code\":$1,\"requeued\":$2"; }

again=false  # whether the run wants to go on: it writes this job's requeue file and ends with 0
if [ "$code" -eq 0 ] && [ -e "$wish" ]; then again=true; fi
if [ "$again" = false ]; then
    finish "$code" false
    exit "$code"
fi

state() { scontrol show job "$job" 2> /dev/null | sed -n 's/^ *JobState=\([A-Z_]*\).*/\1/p'; }

# In any other state SLURM is ending the job already: cancelled, it stays so; preempted, SLURM requeues it.
now=$(state)
if [ -n "$now" ] && [ "$now" != RUNNING ]; then
    say "SLURM has the job as $now, and ends or requeues it itself."
    ended=true
    record end "\"exit_code\":$code,\"requeued\":false,\"state\":\"$now\""
    exit "$code"
fi

finish "$code" true  # before the requeue, which ends this script
if answer=$(scontrol requeue "$job" 2>&1); then exit "$code"; fi
now=$(state)
if [ -n "$now" ] && [ "$now" != RUNNING ]; then
    say "SLURM was first: the job is $now."
    exit "$code"
fi
say "error: SLURM refused to requeue the job: $answer"

say 'not done, and not in the queue. To go on: sbatch /runs/train_bert-1234abcd/slurm.sh'
if [ "$code" -eq 0 ]; then code=75; fi
finish "$code" false
exit "$code"
