#!/usr/bin/env bash
# Runs the tests, in WORKERS processes. Those against SLURM come after the others, in one process: there is one SLURM, they
# keep time, and a busy machine would keep them from it. Words are pytest's; where they choose marks, all is one run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

export OMP_NUM_THREADS=1
nothing_chosen=5 # pytest's exit code
tests() { .venv/bin/python -m pytest --cov "$@"; }

case " $* " in *" -m"*)
    tests --cov-report=term "$@"
    exit
    ;;
esac
tests -n "${WORKERS:-2}" --dist loadfile --cov-report= -m "not slurm" "$@"
others=$?
tests --cov-append --cov-report=term -m slurm "$@"
slurm=$?
if [ "$others" -eq "$nothing_chosen" ]; then exit "$slurm"; fi
if [ "$slurm" -eq "$nothing_chosen" ] || [ "$others" -ne 0 ]; then exit "$others"; fi
exit "$slurm"
