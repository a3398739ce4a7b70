"""The first part of slurm.sh: who the job is, the setup of the site, and the environment of the run's processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from supertrainer.config.cluster import ClusterConfig, FabricConfig, SiteConfig, VendorConfig
from supertrainer.config.secrets import SECRET_REFERENCE
from supertrainer.config.settings import Setting

_NAME_IN_VALUE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")

_FUNCTIONS = """\
say() { echo "slurm.sh: $*"; }

# A line in jobs.jsonl, for whoever asks how the run is. $1: the event, $2: what else there is to it, in JSON.
record() {
    local file=$run/jobs.jsonl now
    now=$(date -u +%Y-%m-%dT%H:%M:%S+00:00)
    if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then echo >> "$file"; fi  # a kill tore the last line off
    printf '{"event":"%s","time":"%s","job_id":"%s","restart":%d,%s}\\n' "$1" "$now" "$job" "$restart" "$2" >> "$file"
}"""

_EXIT = """\
# However the script ends, it says so: a setup line may end it, or a name without a value.
ended=false
# shellcheck disable=SC2329  # the trap calls it
on_exit() {
    local last=$?
    if [ "$ended" = true ]; then return; fi
    say "error: this script ended with $last before the run did."
    record end "\\"exit_code\\":$last,\\"requeued\\":false"
}
trap on_exit EXIT"""

_CHECK = """\
# Without its setup the run would fail later, and less clearly. $1: an exit code, $2: the setting.
check() {
    [ "$1" -eq 0 ] && return
    say "error: $2 ended with $1. Where that is no fault, let the line end in '|| true'."
    exit 1
}"""


def opening_lines(
    *, run: Path, working_directory: Path, code: Path, cluster: ClusterConfig, offline: bool
) -> Iterator[str]:
    """The lines up to the command."""
    yield "set -u  # a name without a value ends the script"
    yield "trap : TERM USR1  # SLURM may signal this shell as well: it lives to see how the run ends"
    yield ""
    yield f"run={shlex.quote(str(run))}"
    yield "job=${SLURM_JOB_ID:?is set in a job: start this script with sbatch}"
    yield "# The last task of an array has the array's own number: only A_I is this task alone."
    yield 'if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID; fi'
    yield "restart=${SLURM_RESTART_COUNT:-0}"
    if cluster.chain > 1:
        yield "left=${1:-0}  # jobs of the chain that wait behind this one"
    yield ""
    yield from _FUNCTIONS.splitlines()
    yield ""
    yield f"cd {shlex.quote(str(working_directory))} || exit 1"
    yield "wish=$run/requeue-$job.json  # written where the run wants to go on after this start"
    yield 'rm -f "$wish"  # the last start\'s'
    yield from _EXIT.splitlines()
    yield """record start "\\"nodes\\":\\"$SLURM_JOB_NODELIST\\"\""""
    yield ""
    yield "# What may be left of the submitting shell: another run's place, and the GPUs of one node, which srun would"
    yield "# hand on to all nodes."
    yield "unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT"
    if cluster.slurm.use_srun:
        yield "unset CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ZE_AFFINITY_MASK"
    yield from _setup(cluster)
    yield from _environment(cluster)
    yield ""
    yield from _own_environment(cluster, code=code, offline=offline)


def _setup(cluster: ClusterConfig) -> Iterator[str]:
    lines = [(f"cluster.site.setup[{index}]", setting) for index, setting in enumerate(cluster.site.setup)]
    lines += [(f"cluster.slurm.setup[{index}]", Setting(value=line)) for index, line in enumerate(cluster.slurm.setup)]
    if not lines:
        return
    yield ""
    yield from _CHECK.splitlines()
    yield ""
    yield "set +u  # modules and activation scripts use names without a value"
    for name, setting in lines:
        yield from _why(setting.why)
        yield setting.value
        yield f"check $? '{name}'"
    yield "set -u"


def _environment(cluster: ClusterConfig) -> Iterator[str]:
    """After the setup, so that no module undoes it."""
    parts: tuple[tuple[str, VendorConfig | FabricConfig | SiteConfig], ...] = (
        ("vendor", cluster.vendor),
        ("fabric", cluster.fabric),
        ("site", cluster.site),
    )
    for part, node in parts:
        if node.environment:
            yield ""
            yield f"# {part}: {' '.join(node.name.splitlines())}"
        for name, setting in node.environment.items():
            yield from _why(setting.why)
            yield f"export {name}={shell_value(setting)}"


def _own_environment(cluster: ClusterConfig, *, code: Path, offline: bool) -> Iterator[str]:
    yield "# Where the processes meet: on the first node, at a port of the job's own."
    yield 'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    yield "MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))"
    yield "export MASTER_ADDR MASTER_PORT"
    yield f"export PYTHONPATH={shlex.quote(str(code))}${{PYTHONPATH:+:$PYTHONPATH}}  # the code that was submitted"
    yield "export PYTHONUNBUFFERED=1  # a killed run's last words reach the log"
    yield "export SUPERTRAINER_JOB=$job  # this script waits, and requeues the job where the run asks for it"
    if offline:
        yield "export HF_HUB_OFFLINE=1  # everything was fetched before the submit"
    if cluster.slurm.cpus_per_task is not None:
        yield f"cpus={cluster.slurm.cpus_per_task}  # of one process"
    else:
        yield f"cpus=$((${{SLURM_CPUS_ON_NODE:-1}} / {cluster.tasks_per_node}))  # of one process: its share of a node"
        yield "if [ $cpus -lt 1 ]; then cpus=1; fi"
    yield "export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$cpus}"


def shell_value(setting: Setting) -> str:
    """A setting's value as a word of shell: to the letter, but for names to expand and references to a secret."""
    secret = SECRET_REFERENCE.fullmatch(setting.value)
    if secret is not None:  # its value is in the job's environment, and must not stand here
        return f'"${{{secret.group(1)}:?error: not in the environment of the job}}"'
    if not setting.expand:
        return shlex.quote(setting.value)
    text, end = "", 0
    for found in _NAME_IN_VALUE.finditer(setting.value):
        text += _between_quotes(setting.value[end : found.start()]) + found.group()
        end = found.end()
    return f'"{text}{_between_quotes(setting.value[end:])}"'


def _between_quotes(text: str) -> str:
    return re.sub(r'([\\"$`])', r"\\\1", text)


def _why(text: str) -> Iterator[str]:
    yield from (f"# {line}" for line in text.splitlines())
