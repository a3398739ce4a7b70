"""The config of the pretraining trainer. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from supertrainer.config.strict import NotIdentity, StrictModel, TargetModel
from supertrainer.core.errors import Problem
from supertrainer.core.placement import placement

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class ScheduleConfig(StrictModel):
    """The learning rate of every update, as a share of its group's peak."""

    name: Literal["constant", "cosine", "linear", "wsd"] = Field(
        default="cosine",
        description="After the warm-up: constant, cosine or linear decay; wsd: constant, at the end a linear decay.",
    )
    warmup_steps: int = Field(default=0, ge=0, description="Updates of the linear rise; the last of them has the peak.")
    decay_steps: int | None = Field(
        default=None,
        ge=0,
        description="Updates of the decay; the last of them has final_share. null: cosine and linear decay to the last "
        "step of the run; wsd needs a number.",
    )
    final_share: Share = Field(default=0.1, description="What is left of the peak after the decay.")

    @property
    def depends_on_length(self) -> bool:
        """Whether the rate of every update depends on how many the run has, so that a longer run is another one.

        The rate of wsd does so in its decay only: a longer run goes on from the checkpoint before it, which is kept.
        """
        return self.name in ("cosine", "linear") and self.decay_steps is None

    @model_validator(mode="after")
    def _decay_belongs_to_the_schedule(self) -> ScheduleConfig:
        if self.name == "wsd" and self.decay_steps is None:
            raise ValueError(
                "schedule.name=wsd without decay_steps: where the decay begins isn't said. "
                "Fix: decay_steps, a tenth of max_steps say; 0 never decays."
            )
        if self.name == "constant" and self.decay_steps:
            raise ValueError(
                f"schedule.name=constant with decay_steps={self.decay_steps}: a constant rate doesn't decay. "
                "Fix: name=wsd, or decay_steps=null."
            )
        return self


class ParallelConfig(StrictModel):
    """How several processes share the model. With one process there is nothing to share."""

    strategy: Literal["auto", "none", "ddp", "fsdp"] = Field(
        default="auto",
        description="ddp: every process holds the whole model; fsdp: each holds a part of every weight (FSDP2); none: "
        "only for one process; auto: ddp where weights, gradients and optimizer take up to a third of the GPU, else "
        "fsdp.",
    )
    replicas: int = Field(
        default=1,
        ge=1,
        description="Of fsdp: groups of processes that hold the model once each (HSDP); 1: all share it.",
    )

    @model_validator(mode="after")
    def _replicas_of_fsdp(self) -> ParallelConfig:
        if self.replicas > 1 and self.strategy not in ("auto", "fsdp"):
            raise ValueError(
                f"parallel.replicas={self.replicas} with strategy={self.strategy}: only fsdp has groups of processes. "
                "Fix: strategy=fsdp, or replicas=1."
            )
        return self


class GuardConfig(StrictModel):
    """Which updates are left out, so that one bad batch doesn't spoil the weights. NaN and infinities always are."""

    spike_sigmas: Annotated[float, Field(gt=0)] | None = Field(
        default=6.0,
        description="An update is skipped where its loss or gradient norm is this many standard deviations above the "
        "mean of the last `window` updates; null: only what isn't finite.",
    )
    window: int = Field(default=128, ge=2, description="Updates that a spike is measured against; none before them.")
    stop_after: int = Field(
        default=10, ge=1, description="Skipped updates in a row after which the run ends in an error."
    )


class PretrainTrainerConfig(TargetModel):
    """Pretraining of a decoder on streams of tokens."""

    global_batch_size: int = Field(gt=0, description="Rows of one optimizer step, over all processes.")
    micro_batch_size: Annotated[int | None, NotIdentity()] = Field(
        default=None, gt=0, description="Rows that a process computes at once; null: all of its rows of a step."
    )
    sequence_length: int = Field(gt=0, description="Tokens of a row that have a next one to predict.")
    max_steps: int = Field(gt=0, description="Optimizer steps of the whole run.")
    learning_rate: float = Field(gt=0, allow_inf_nan=False, description="The peak; μP scales it for each group.")
    weight_decay: NotNegative = Field(default=0.1, description="Of matrices; the model's table says of which.")
    betas: tuple[Beta, Beta] = Field(default=(0.9, 0.95), description="Of AdamW.")
    eps: float = Field(default=1e-8, gt=0, allow_inf_nan=False, description="Of AdamW.")
    max_grad_norm: float | None = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Gradients are scaled down to this norm; null: never."
    )
    z_loss: NotNegative = Field(
        default=0.0,
        description="Weight of the squared log-partition of the logits, 1e-4 say: keeps them from drifting.",
    )
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        default="auto", description="What matrices are multiplied in; weights are float32. auto: bfloat16 on a GPU."
    )
    allow_bfloat16_on_cpu: Annotated[bool, NotIdentity()] = Field(
        default=False, description="precision=bfloat16 without a GPU, which is ten to fifty times slower than float32."
    )
    parallel: Annotated[ParallelConfig, NotIdentity()] = Field(default_factory=ParallelConfig)
    activation_checkpointing: Annotated[Literal["none", "full", "selective"], NotIdentity()] = Field(
        default="none",
        description="What of a block is computed anew in the backward pass: nothing, all, all but matrix products.",
    )
    compile: Annotated[bool, NotIdentity()] = Field(default=False, description="torch.compile, block by block.")
    guard: GuardConfig = Field(default_factory=GuardConfig)
    log_every: Annotated[int, NotIdentity()] = Field(
        default=10, ge=1, description="Steps between rows of metrics.jsonl."
    )
    save_every: Annotated[int, NotIdentity()] = Field(
        default=500, ge=1, description="Steps between checkpoints; the last step is always saved."
    )
    eval_every: Annotated[int, NotIdentity()] = Field(
        default=500, ge=0, description="Steps between evaluations, and at the last step; 0: none."
    )
    eval_rows: Annotated[int, NotIdentity()] = Field(default=64, ge=1, description="Validation rows of an evaluation.")
    keep_last: Annotated[int, NotIdentity()] = Field(
        default=2, ge=1, description="Checkpoints that are kept, newest first."
    )
    async_save: Annotated[bool, NotIdentity()] = Field(
        default=True, description="Write checkpoints beside the training, from a copy of the state in memory."
    )
    gc_every: Annotated[int, NotIdentity()] = Field(
        default=500, ge=1, description="Steps between garbage collections, at the same steps on all processes."
    )
    sample_prompts: Annotated[tuple[str, ...], NotIdentity()] = Field(
        default=(), description="Texts that are continued at each evaluation, for samples.jsonl."
    )
    sample_tokens: Annotated[int, NotIdentity()] = Field(
        default=64, ge=1, description="Tokens of a continuation at most."
    )
    sample_temperature: Annotated[NotNegative, NotIdentity()] = Field(
        default=0.0, description="0: the likeliest token each time; else tokens are drawn, the same ones at each run."
    )

    @property
    def method(self) -> str:
        """How the model is trained, in a word."""
        return "pretraining"

    def schedule_by_length(self) -> tuple[str | None, str]:
        """The schedule where its rates depend on the length of the run, else None; and those whose rates don't.

        The rates of wsd do so in its decay: a longer run goes on from the checkpoint before it, which is kept.
        """
        others = "schedule.name=constant and wsd, and cosine and linear with decay_steps,"
        return f"schedule.name={self.schedule.name}" if self.schedule.depends_on_length else None, others

    def seen_by_check(self) -> list[str]:
        """What the check before a submit depends on: all but what a sweep is usually over."""
        return [self.model_dump_json(exclude={"learning_rate", "weight_decay", "betas", "eps", "schedule"})]

    def rules(self, config: Any) -> Iterable[Problem]:
        if config.operation not in ("train", "check", "verify"):
            return
        there = placement()
        if config.run.mode == "full":  # the other modes shorten a run, not its schedule
            yield from schedule_problems(self)
        if config.operation != "verify":  # which computes in float32, in one process and two, whatever is asked for
            yield from division_problems(self, processes=there.processes)
            yield from layout_problems(self.parallel, processes=there.processes)
            yield from self._precision_problems(has_gpu=there.has_gpu)
        positions = None if config.model is None else vars(config.model).get("max_length")
        if isinstance(positions, int) and positions < self.sequence_length:
            yield Problem(
                f"trainer.sequence_length={self.sequence_length} is more than model.max_length={positions}.",
                why="the model has no positions beyond it.",
                fix=f"trainer.sequence_length={positions}, or model.max_length={self.sequence_length}.",
            )

    def _precision_problems(self, *, has_gpu: bool) -> Iterable[Problem]:
        if self.precision == "bfloat16" and not has_gpu and not self.allow_bfloat16_on_cpu:
            yield Problem(
                "trainer.precision=bfloat16 without a GPU.",
                why="a CPU computes 16-bit formats ten to fifty times slower than float32.",
                fix="precision=auto or float32, or run on a GPU; allow_bfloat16_on_cpu=true does it all the same.",
            )

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> PretrainTrainerConfig:
        for problem in division_problems(self, processes=1):
            raise ValueError(f"{problem.what} Fix: {problem.fix}")
        return self


def schedule_problems(config: PretrainTrainerConfig) -> list[Problem]:
    """Whether the rate has risen before it falls, and has fallen when the run ends."""
    warmup, decay, steps = config.schedule.warmup_steps, config.schedule.decay_steps or 0, config.max_steps
    if warmup + decay <= steps:
        return []
    return [
        Problem(
            f"trainer.schedule.warmup_steps={warmup} + decay_steps={decay} are more than trainer.max_steps={steps}.",
            why="the run would end before the rate has risen and fallen as asked.",
            fix=f"trainer.max_steps={warmup + decay} or more, or a shorter warm-up or decay.",
        )
    ]


def rows_of_process(config: PretrainTrainerConfig, *, processes: int) -> int:
    """Rows of a step that each process computes."""
    return config.global_batch_size // processes


def micro_batch_rows(config: PretrainTrainerConfig, *, processes: int) -> int:
    """Rows that each process computes at once."""
    return config.micro_batch_size or rows_of_process(config, processes=processes)


def division_problems(config: PretrainTrainerConfig, *, processes: int) -> list[Problem]:
    """Whether the processes' micro-batches fill a step evenly."""
    rows, micro = config.global_batch_size, config.micro_batch_size or 1
    unit = micro * processes
    if rows % unit == 0:
        return []
    shown = (
        f"trainer.micro_batch_size={micro} × {processes} processes"
        if config.micro_batch_size
        else f"{processes} processes"
    )
    share, rest = divmod(rows, processes)
    sizes = [] if rest else [size for size in range(1, share + 1) if share % size == 0]
    closest = sorted(sorted(sizes, key=lambda size: abs(size - micro))[:3])
    choices = (
        f", or trainer.micro_batch_size={' or '.join(map(str, closest))}" if closest and config.micro_batch_size else ""
    )
    return [
        Problem(
            f"{shown} {'do' if processes > 1 else 'does'} not divide trainer.global_batch_size={rows}.",
            why="every process computes the same number of micro-batches in a step.",
            fix=f"trainer.global_batch_size={max(round(rows / unit), 1) * unit}{choices}.",
        )
    ]


def layout_problems(parallel: ParallelConfig, *, processes: int) -> list[Problem]:
    """Whether the processes can be laid out as asked."""
    if processes > 1 and parallel.strategy == "none":
        return [
            Problem(
                f"trainer.parallel.strategy=none with {processes} processes.",
                why="each would train by itself.",
                fix="trainer.parallel.strategy=auto, or start one process.",
            )
        ]
    if processes % parallel.replicas or parallel.replicas == processes > 1:
        return [
            Problem(
                f"trainer.parallel.replicas={parallel.replicas} with {processes} processes.",
                why="the processes are divided into that many groups, of several processes each.",
                fix="a divisor of the number of processes that is less than it; strategy=ddp is a group per process.",
            )
        ]
    return []
