#!/bin/bash
# The 3 runs of the sweep seeds, written by supertrainer VERSION.
#     sbatch /sweeps/seeds/array.sh
# goes on with each of them; a finished run ends at once. One run alone: sbatch its own slurm.sh.
#SBATCH --job-name=seeds
#SBATCH --chdir=/home/me/project
#SBATCH --array=0-2%256  # at most 256 at a time
#SBATCH --output=/sweeps/seeds/tasks/%a/slurm-%A_%a.out  # tasks/I links to run I's logs
#SBATCH --open-mode=append  # a requeued job goes on in its log
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1  # one per process
#SBATCH --time=60  # minutes; the run goes on in another start
#SBATCH --signal=USR1@120  # seconds before the limit, to save; every process gets it
#SBATCH --requeue  # after a preemption or a node's failure the run goes on

scripts=(
    /runs/seeds-0/slurm.sh
    /runs/seeds-1/slurm.sh
    /runs/seeds-2/slurm.sh
)
exec bash "${scripts[SLURM_ARRAY_TASK_ID]}" "$@"
