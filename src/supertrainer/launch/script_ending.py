"""The last part of slurm.sh, outside any container: the exit code, and whether the job goes into the queue again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from supertrainer.config.cluster import ClusterConfig

_FINISH = """\
# $1: the exit code, $2: whether the job is to be requeued.
finish() { ended=true; record end "\\"exit_code\\":$1,\\"requeued\\":$2"; }"""

_FINISH_WITH_CHECKPOINT = """\
checkpoint=none
for step in "$run"/checkpoints/step-*; do if [ -d "$step" ]; then checkpoint=${step##*/}; fi; done

# $1: the exit code, $2: whether the job is to be requeued.
finish() { ended=true; record end "\\"exit_code\\":$1,\\"requeued\\":$2,\\"checkpoint\\":\\"$checkpoint\\""; }"""

_RESTART = """\
# A crash is tried again, unless so many ended at this same checkpoint; 2: the config is wrong, 75 and 130: stopped.
if [ "$code" -ne 0 ] && [ "$code" -ne 2 ] && [ "$code" -ne 75 ] && [ "$code" -ne 130 ]; then
    crashes=$(grep -c "\\"exit_code\\":[1-9].*\\"checkpoint\\":\\"$checkpoint\\"" "$run/jobs.jsonl")
    if [ "$crashes" -lt {retries} ]; then
        again=true
    else
        say "error: crashed {attempts} times without a new checkpoint; not tried again."
    fi
fi"""

_CHAIN = """\
if [ "$left" -gt 0 ]; then
    say "not done; the next job of the chain goes on ($left left)."
    finish "$code" false
    exit "$code"
fi"""

_REQUEUE = """\
state() { scontrol show job "$job" 2> /dev/null | sed -n 's/^ *JobState=\\([A-Z_]*\\).*/\\1/p'; }

# In any other state SLURM is ending the job already: cancelled, it stays so; preempted, SLURM requeues it.
now=$(state)
if [ -n "$now" ] && [ "$now" != RUNNING ]; then
    say "SLURM has the job as $now, and ends or requeues it itself."
    ended=true
    record end "\\"exit_code\\":$code,\\"requeued\\":false,\\"state\\":\\"$now\\""
    exit "$code"
fi"""

_ASK = """\
finish "$code" true  # before the requeue, which ends this script
if answer=$(scontrol requeue "$job" 2>&1); then exit "$code"; fi
now=$(state)
if [ -n "$now" ] && [ "$now" != RUNNING ]; then
    say "SLURM was first: the job is $now."
    exit "$code"
fi
say "error: SLURM refused to requeue the job: $answer\""""


def ending_lines(*, run: Path, cluster: ClusterConfig) -> Iterator[str]:
    """The lines after the command, with its exit code in `code`."""
    by_hand = f"sbatch {shlex.quote(str(run / 'slurm.sh'))}"
    attempts = cluster.max_attempts_without_progress
    yield from (_FINISH_WITH_CHECKPOINT if cluster.restart_on_failure else _FINISH).splitlines()
    yield ""
    yield "again=false  # whether the run wants to go on: it writes this job's requeue file and ends with 0"
    yield 'if [ "$code" -eq 0 ] && [ -e "$wish" ]; then again=true; fi'
    if cluster.restart_on_failure:
        yield from _RESTART.format(retries=attempts - 1, attempts=attempts).splitlines()
    yield 'if [ "$again" = false ]; then'
    yield '    finish "$code" false'
    yield '    exit "$code"'
    yield "fi"
    yield ""
    if cluster.chain > 1:
        yield from _CHAIN.splitlines()
    else:
        yield from _requeue(cluster.slurm.max_num_timeout)
    yield ""
    yield f"say {shlex.quote(f'not done, and not in the queue. To go on: {by_hand}')}"
    yield 'if [ "$code" -eq 0 ]; then code=75; fi'
    yield 'finish "$code" false'
    yield 'exit "$code"'


def _requeue(most: int | None) -> Iterator[str]:
    yield from _REQUEUE.splitlines()
    yield ""
    if most is None:
        yield from _ASK.splitlines()
        return
    yield f'if [ "$restart" -ge {most} ]; then'
    yield f'    say "error: requeued {most} times already (cluster.slurm.max_num_timeout)."'
    yield "else"
    yield from (f"    {line}" for line in _ASK.splitlines())
    yield "fi"
