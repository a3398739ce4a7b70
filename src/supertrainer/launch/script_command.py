"""The middle of slurm.sh: the command that starts the run's processes, one word a line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from supertrainer.config.cluster import ClusterConfig

# SIGUSR1 kills a process that doesn't know it. Ignored from the start, it is harmless to torchrun and to a Python that
# still imports; a process that is ready for it sets a handler.
_UNHARMED = """sh -c "trap '' USR1; exec \\"\\$@\\"" sh"""


def command_lines(
    *,
    cluster: ClusterConfig,
    python: str,
    main: Path,
    words: Sequence[str],
    mounts: Sequence[Path],
    workdir: Path,
) -> Iterator[str]:
    """Lines that run the command and leave its exit code in `code`."""
    container = cluster.container
    interpreter = python if container.name == "none" else container.python
    yield "command=("
    if cluster.slurm.use_srun:
        yield from map(_indented, _srun(cluster, mounts=mounts, workdir=workdir))
    yield f"    {_UNHARMED}  # the signal to save harms no process that isn't ready for it"
    if container.name == "singularity":
        yield from map(_indented, _singularity(cluster, mounts=mounts, workdir=workdir))
    yield f"    {shlex.quote(interpreter)}"
    if cluster.processes == "torchrun" and cluster.slurm.use_srun:
        yield from map(_indented, _torchrun(cluster))
    yield from (f"    {shlex.quote(word)}" for word in (str(main), *words))
    yield ")"
    yield ""
    yield from _wait() if cluster.slurm.use_srun else _wait_and_hand_on()


def _srun(cluster: ClusterConfig, *, mounts: Sequence[Path], workdir: Path) -> Iterator[str]:
    slurm = cluster.slurm
    tasks = 1 if cluster.processes == "torchrun" else cluster.tasks_per_node
    yield "srun"
    yield "--kill-on-bad-exit=1  # without it the others wait for ever for one that died"
    yield "--export=ALL  # what is exported above"
    yield f"--nodes={slurm.nodes} --ntasks={slurm.nodes * tasks} --ntasks-per-node={tasks}"
    if slurm.cpus_per_gpu is None:
        by_torchrun = tasks < cluster.tasks_per_node
        cpus = f"$((cpus * {cluster.tasks_per_node}))" if by_torchrun else '"$cpus"'
        yield f"--cpus-per-task={cpus}  # a step has one CPU a task, whatever the job has"
    container = cluster.container
    if container.name == "pyxis":
        pairs = [*(f"{path}:{path}" for path in _outermost(mounts)), *container.mounts]
        yield _word(f"--container-image={container.image}")
        yield _word(f"--container-mounts={','.join(pairs)}")
        yield _word(f"--container-workdir={container.workdir or workdir}")
        yield from map(_word, container.arguments)
    yield from map(_word, slurm.srun_args)


def _singularity(cluster: ClusterConfig, *, mounts: Sequence[Path], workdir: Path) -> Iterator[str]:
    container = cluster.container
    yield f"singularity {container.command}"
    if cluster.vendor.name == "nvidia":
        yield "--nv  # the host's driver; ROCm needs none of the host"
    for mount in (*map(str, _outermost(mounts)), *container.mounts):
        yield f"--bind {shlex.quote(mount)}"
    yield f"--pwd {shlex.quote(container.workdir or str(workdir))}"
    yield from map(_word, container.arguments)
    yield shlex.quote(container.image or "")


def _torchrun(cluster: ClusterConfig) -> Iterator[str]:
    yield "-m torch.distributed.run"
    yield f"--nnodes={cluster.slurm.nodes} --nproc-per-node={cluster.tasks_per_node}"
    yield '--rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --rdzv-id="$job"'


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """The paths without those that lie in another of them."""
    return [
        path
        for index, path in enumerate(paths)
        if path not in paths[:index] and not any(other in path.parents for other in paths)
    ]


def _word(text: str) -> str:
    """A word of an array, quoted where it holds a comma too: to a reader it would look like two."""
    return f"'{text}'" if "," in text and shlex.quote(text) == text else shlex.quote(text)


def _indented(line: str) -> str:
    return f"    {line}"


def _wait() -> Iterator[str]:
    yield '"${command[@]}"'
    yield "code=$?"


def _wait_and_hand_on() -> Iterator[str]:
    yield "# Without srun a signal comes to this shell alone, which hands it on."
    yield "process="
    yield "trap 'kill -TERM \"$process\" 2> /dev/null' TERM"
    yield "trap 'kill -USR1 \"$process\" 2> /dev/null' USR1"
    yield '"${command[@]}" &'
    yield "process=$!"
    yield 'while kill -0 "$process" 2> /dev/null; do wait "$process"; done  # a signal ends a wait early'
    yield 'wait "$process"'
    yield "code=$?"
