"""Where runs are executed: a vendor, a fabric, a container and a site, and what is asked of SLURM.

Values reach the job's script, so each is checked here for what a script can hold. SLURM's parameters carry submitit's
names.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from supertrainer.config.sbatch import checked_parameters
from supertrainer.config.settings import Count, Environment, Line, Memory, Setting, Text
from supertrainer.config.strict import FrozenMapping, StrictModel
from supertrainer.core.placement import Placement

_GRES_GPUS = re.compile(r"(?:^|,)(?:gres[:/])?gpu(?::[A-Za-z_][\w.-]*)?(?:[:=](\d+))?(?=$|,|\()")


class VendorConfig(StrictModel):
    """Who made the GPUs."""

    name: Literal["none", "amd", "nvidia"] = "none"
    environment: Environment = Field(default_factory=dict)


class FabricConfig(StrictModel):
    """What the nodes talk over."""

    name: Literal["none", "infiniband", "slingshot"] = "none"
    environment: Environment = Field(default_factory=dict)


class ContainerConfig(StrictModel):
    """What the run's processes start in. The script itself always stays outside.

    Attributes:
        image: a path, or what `srun --container-image` takes.
        command: singularity's: exec, or run, which goes through the image's own start script.
        mounts: further `SOURCE[:TARGET[:OPTIONS]]`; run, code and working directory are mounted anyway.
        workdir: where processes start inside; None: the working directory of the submit.
        arguments: further words for `singularity`'s `exec` or for pyxis's `srun`.
        python: the interpreter inside.
    """

    name: Literal["none", "singularity", "pyxis"] = "none"
    image: Text | None = None
    command: Literal["exec", "run"] = "exec"
    mounts: tuple[Text, ...] = ()
    workdir: Text | None = None
    arguments: tuple[Text, ...] = ()
    python: Text = "python3"

    @model_validator(mode="after")
    def _has_an_image(self) -> ContainerConfig:
        if self.name != "none" and not self.image:
            raise ValueError(f"name={self.name} without an image. Fix: image=PATH, or name=none.")
        return self


class SiteConfig(StrictModel):
    """What is particular to one place: modules, paths, its variables.

    Attributes:
        setup: shell lines before the run, outside a container.
    """

    name: Text = "none"
    setup: tuple[Setting, ...] = ()
    environment: Environment = Field(default_factory=dict)


class SlurmConfig(StrictModel):
    """What is asked of SLURM, by submitit's names; None leaves it to SLURM.

    Attributes:
        timeout_min: time limit of one start, in minutes.
        tasks_per_node: processes on each node; None: one per GPU, or one.
        cpus_per_task: CPUs of one process, whatever starts it.
        mem_gb: memory of a node, in GiB; 0: all of it.
        mem_per_gpu, mem_per_cpu: memory with its unit, such as 60G.
        signal_delay_s: seconds between the signal to save and the time limit.
        max_num_timeout: how often the script requeues the run; None: as long as it gets on.
        array_parallelism: runs of a sweep at a time.
        setup: shell lines before the run, after the site's.
        srun_args: further words for srun.
        use_srun: false starts the one process from the script itself.
        python: the interpreter outside a container; None: the one that submits.
        additional_parameters: any other sbatch option; true: a flag, false or null: left out.
    """

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    exclude: Line | None = None
    nodelist: Line | None = None
    gres: Line | None = None
    comment: Line | None = None
    dependency: Line | None = None
    reservation: Line | None = None
    mail_type: Line | None = None
    mail_user: Line | None = None
    job_name: Line | None = None
    wckey: Line | None = None
    exclusive: bool = False
    timeout_min: Count = 60
    nodes: Count = 1
    tasks_per_node: Count | None = None
    gpus_per_node: Count | None = None
    gpus_per_task: Count | None = None
    cpus_per_task: Count | None = None
    cpus_per_gpu: Count | None = None
    mem_gb: float | None = Field(default=None, ge=0)
    mem_per_gpu: Memory | None = None
    mem_per_cpu: Memory | None = None
    signal_delay_s: int = Field(default=120, ge=1, le=65535)
    max_num_timeout: int | None = Field(default=None, ge=0)
    array_parallelism: Count = 256
    setup: tuple[Text, ...] = ()
    srun_args: tuple[Text, ...] = ()
    use_srun: bool = True
    python: Text | None = None
    additional_parameters: Annotated[FrozenMapping, AfterValidator(checked_parameters)] = Field(default_factory=dict)

    @property
    def num_gpus(self) -> int:
        """GPUs of a node that are asked for by a number of their own or in `gres`; 0: none by these."""
        if self.gpus_per_node is not None:
            return self.gpus_per_node
        if self.gpus_per_task is not None:
            return self.gpus_per_task * (self.tasks_per_node or 1)
        return sum(int(found.group(1) or 1) for found in _GRES_GPUS.finditer(self.gres or ""))

    @model_validator(mode="after")
    def _one_form_of_memory(self) -> SlurmConfig:
        given = [name for name in ("mem_gb", "mem_per_gpu", "mem_per_cpu") if vars(self)[name] is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other in SLURM. Fix: keep one, set the rest to null.")
        return self

    @model_validator(mode="after")
    def _gpus_agree(self) -> SlurmConfig:
        node, task, tasks = self.gpus_per_node, self.gpus_per_task, self.tasks_per_node
        if node and task and (node % task or (tasks is not None and tasks * task != node)):
            raise ValueError(
                f"gpus_per_node={node} and gpus_per_task={task}"
                f"{f' of tasks_per_node={tasks} tasks' if tasks else ''} don't agree. "
                f"Fix: gpus_per_task=null, or gpus_per_node={task * (tasks or max(node // task, 1))}."
            )
        if self.gres and "gpu" in self.gres and (node or task):
            raise ValueError(
                f"gres={self.gres} and {'gpus_per_node' if node else 'gpus_per_task'}={node or task} both ask for "
                "GPUs. Fix: keep one, set the other to null."
            )
        return self

    @model_validator(mode="after")
    def _cpus_and_shares_agree(self) -> SlurmConfig:
        if self.cpus_per_task and self.cpus_per_gpu:
            raise ValueError("cpus_per_task and cpus_per_gpu exclude each other in SLURM. Fix: set one to null.")
        share = "cpus_per_gpu" if self.cpus_per_gpu else "mem_per_gpu" if self.mem_per_gpu else None
        if share and not self.num_gpus and not any("gpus" in name for name in self.additional_parameters):
            raise ValueError(f"{share}={vars(self)[share]} without a GPU. Fix: gpus_per_node=N, or {share}=null.")
        return self

    @model_validator(mode="after")
    def _signal_leaves_time(self) -> SlurmConfig:
        if self.signal_delay_s >= self.timeout_min * 60:
            raise ValueError(
                f"signal_delay_s={self.signal_delay_s} leaves no time of timeout_min={self.timeout_min}: the run would "
                f"be told to save as it starts. Fix: signal_delay_s={self.timeout_min * 30}, or a longer timeout_min."
            )
        return self


class ClusterConfig(StrictModel):
    """Where runs are executed, and how their processes start.

    Attributes:
        processes: srun: one task per process; torchrun: one task per node, which starts the node's processes.
        chain: jobs queued one after another, where a site forbids requeueing.
        max_attempts_without_progress: starts in a row that saved nothing new; then the run stays failed.
        restart_on_failure: requeue a crash too, as often as that.
    """

    name: Text = "local"
    vendor: VendorConfig = VendorConfig()
    fabric: FabricConfig = FabricConfig()
    container: ContainerConfig = ContainerConfig()
    site: SiteConfig = SiteConfig()
    slurm: SlurmConfig = SlurmConfig()
    processes: Literal["srun", "torchrun"] = "srun"
    chain: Count = 1
    max_attempts_without_progress: Count = 3
    restart_on_failure: bool = False

    @property
    def tasks_per_node(self) -> int:
        """Processes of the run on each node: as asked for, else one per GPU, else one."""
        slurm = self.slurm
        if slurm.tasks_per_node is not None:
            return slurm.tasks_per_node
        return max(slurm.num_gpus // (slurm.gpus_per_task or 1), 1)

    @property
    def processes_per_run(self) -> int:
        """Processes that train together."""
        return self.slurm.nodes * self.tasks_per_node

    @property
    def placement(self) -> Placement:
        """Where a run of a job is executed."""
        return Placement(processes=self.processes_per_run, has_gpu=self.has_gpus)

    @property
    def has_gpus(self) -> bool:
        """Whether any GPU is asked for."""
        return self.slurm.num_gpus > 0 or any("gpus" in name for name in self.slurm.additional_parameters)

    @model_validator(mode="after")
    def _starts_without_srun(self) -> ClusterConfig:
        slurm = self.slurm
        if slurm.use_srun:
            return self
        if self.container.name == "pyxis":
            raise ValueError(
                "container.name=pyxis with slurm.use_srun=false: pyxis is a part of srun. Fix: use_srun=true."
            )
        if self.processes_per_run > 1:
            raise ValueError(
                f"slurm.use_srun=false with {self.processes_per_run} processes: without srun the script starts one. "
                "Fix: slurm.use_srun=true, or nodes=1 and tasks_per_node=1."
            )
        return self

    @model_validator(mode="after")
    def _masks_fit(self) -> ClusterConfig:
        for word in self.slurm.srun_args:
            kind, _, masks = word.removeprefix("--cpu-bind=").partition(":")
            if not word.startswith("--cpu-bind=") or kind not in ("mask_cpu", "map_cpu"):
                continue
            tasks = 1 if self.processes == "torchrun" else self.tasks_per_node
            if len(masks.split(",")) != tasks:
                raise ValueError(
                    f"slurm.srun_args binds {len(masks.split(','))} tasks of a node to CPUs; here a node has {tasks}"
                    f"{' (processes=torchrun)' if self.processes == 'torchrun' else ''}. "
                    "Fix: slurm.srun_args=[], or as many masks as tasks."
                )
        return self


# Of `hydra.launcher.KEY`: what is asked of SLURM, and what the launchers do with it.
LAUNCHER_PARAMETERS = (
    *SlurmConfig.model_fields,
    *("name", "stderr_to_stdout", "submitit_folder", "wait", "poll_s", "check"),
)
