"""The config of each task's trainer and tracker, and what follows from it by arithmetic. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supertrainer.config.passthrough import Passthrough
from supertrainer.config.strict import FrozenMapping, NotIdentity, TargetModel
from supertrainer.config.tasks import NAMED_TASKS, task_of
from supertrainer.core.errors import ConfigError, DataError, Problem
from supertrainer.core.placement import placement
from supertrainer.models.schema import ModelKwargs
from supertrainer.trainers.kwargs import (
    CADENCE_KWARGS,
    REFUSED_BITSANDBYTES_KWARGS,
    REFUSED_PEFT_KWARGS,
    REFUSED_TRAINING_KWARGS,
)
from supertrainer.trainers.ranges import range_problems

# Of lr_scheduler_type: those whose rate at a step doesn't depend on how many steps are to come.
_OPEN_ENDED_SCHEDULES = frozenset(
    {"constant", "constant_with_warmup", "inverse_sqrt", "reduce_lr_on_plateau", "greedy"}
)


class TrackerConfig(TargetModel):
    """Where curves go beside metrics.jsonl, which is always written."""


class NoTrackerConfig(TrackerConfig):
    """Nowhere else."""


class TensorBoardTrackerConfig(TrackerConfig):
    """TensorBoard event files in the run directory."""


class TrainerConfig(TargetModel):
    """What every fine-tuning trainer has."""

    global_batch_size: int = Field(
        default=32, gt=0, description="Rows of one optimizer step, over all processes and micro-batches."
    )
    batching: Literal["length", "random"] = Field(
        default="length", description="length: rows of like length share a step, so little padding; random: any rows."
    )
    select: Literal["last", "best"] = Field(
        default="last",
        description="Which weights become the trained model: the last, or those with the best metric.main.",
    )
    keep_last: Annotated[int, NotIdentity()] = Field(
        default=2, ge=1, description="Checkpoints that are kept, newest first; the best one is kept beside them."
    )
    model_kwargs: ModelKwargs = Field(default_factory=ModelKwargs, description="dtype and attention.")
    bitsandbytes_kwargs: Annotated[
        FrozenMapping | None,
        Passthrough(
            "transformers",
            "utils/quantization_config.py",
            "BitsAndBytesConfig",
            refused=REFUSED_BITSANDBYTES_KWARGS,
        ),
    ] = Field(default=None, description="Keys of transformers.BitsAndBytesConfig: how frozen weights are quantized.")
    peft_kwargs: Annotated[
        FrozenMapping | None,
        Passthrough("peft", "tuners/lora/config.py", "LoraConfig", refused=REFUSED_PEFT_KWARGS),
    ] = Field(default=None, description="Keys of peft.LoraConfig; null trains every weight.")
    training_kwargs: Annotated[
        FrozenMapping,
        Passthrough(
            "transformers",
            "training_args.py",
            "TrainingArguments",
            refused=REFUSED_TRAINING_KWARGS,
            not_identity=CADENCE_KWARGS,
        ),
    ] = Field(default_factory=dict, description="Keys of transformers.TrainingArguments.")

    @field_validator("peft_kwargs", "bitsandbytes_kwargs", mode="before")
    @classmethod
    def _nothing_is_none(cls, value: Any) -> Any:
        """An empty group file (`none.yaml`) composes to {}: the same as null."""
        return value or None

    @property
    def micro_batch_size(self) -> int:
        """Rows that one process puts through the model at once."""
        return int(self.training_kwargs.get("per_device_train_batch_size", min(8, self.global_batch_size)))

    def rules(self, config: Any) -> Iterable[Problem]:
        if config.operation not in ("train", "check", "verify"):
            return
        yield from range_problems(self.training_kwargs, path="trainer.training_kwargs")
        if config.operation != "verify":  # which computes in float32 whatever is asked for
            yield from precision_problems(self.training_kwargs, has_gpu=placement().has_gpu)
        try:
            accumulation_steps(
                global_batch_size=self.global_batch_size,
                micro_batch_size=self.micro_batch_size,
                num_processes=placement().processes,
            )
        except ConfigError as error:
            yield from error.problems

    def further_identity(self, config: Any) -> Mapping[str, Any]:
        """Where the best weights are taken, what ranks them decides which they are."""
        if self.select != "best" or config.metric is None:
            return {}
        return {"metric.main": config.metric.main, "metric.greater_is_better": config.metric.greater_is_better}

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> TrainerConfig:
        size, micro = self.global_batch_size, self.micro_batch_size
        if micro < 1 or size % micro:
            raise ValueError(_indivisible(size, micro, 1))
        return self

    @model_validator(mode="after")
    def _quantized_weights_carry_an_adapter(self) -> TrainerConfig:
        kwargs = self.bitsandbytes_kwargs
        if kwargs is None:
            return self
        if self.peft_kwargs is None:
            raise ValueError(
                "bitsandbytes_kwargs without peft_kwargs: quantized weights can't be trained. "
                "Fix: trainer/common/peft_kwargs@trainer.peft_kwargs=lora, or bitsandbytes_kwargs=none."
            )
        bits = [key for key in ("load_in_4bit", "load_in_8bit") if kwargs.get(key)]
        if len(bits) != 1:
            asked = " and ".join(bits) or "neither load_in_4bit nor load_in_8bit"
            raise ValueError(f"bitsandbytes_kwargs asks for {asked}. Fix: one of load_in_4bit, load_in_8bit.")
        dtype = kwargs.get("bnb_4bit_compute_dtype")
        if dtype not in (None, "float32", "bfloat16", "float16"):
            raise ValueError(
                f"bitsandbytes_kwargs.bnb_4bit_compute_dtype={dtype!r} is no number format to compute in. "
                "Fix: float32, bfloat16 or float16; null chooses by the device."
            )
        return self

    @property
    def method(self) -> str:
        """How the model is fine-tuned, in a word."""
        if self.peft_kwargs is None:
            return "full"
        name = "dora" if self.peft_kwargs.get("use_dora") else "lora"
        return f"q{name}" if self.bitsandbytes_kwargs is not None else name

    @model_validator(mode="after")
    def _best_needs_evaluation(self) -> TrainerConfig:
        if self.select == "best" and self.training_kwargs.get("eval_strategy", "no") == "no":
            raise ValueError(
                "select=best without evaluation: nothing would rank the checkpoints. "
                "Fix: training_kwargs.eval_strategy=epoch (or steps), or select=last."
            )
        if self.training_kwargs.get("save_strategy") == "best":
            raise ValueError(
                "training_kwargs.save_strategy=best is not set here. "
                "Fix: select=best saves every new best, beside the regular checkpoints of save_strategy=steps or epoch."
            )
        return self


Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BertTrainerConfig(TrainerConfig):
    """Fine-tuning of an encoder with a head."""

    class_weights: Literal["balanced"] | dict[str, Weight] | None = Field(
        default=None,
        description="How much each class weighs in the loss: null: all the same; balanced: the rarer the more; or "
        "{label: weight}, where a label that isn't named weighs 1. The mean is over the weights.",
    )

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        if config.operation not in ("train", "check"):
            return
        task = task_of(config)
        if self.class_weights is not None and task not in NAMED_TASKS:
            yield Problem(
                f"trainer.class_weights with model.task={task}, which has no classes.",
                fix="trainer.class_weights=null.",
            )
        if self.training_kwargs.get("label_smoothing_factor") and task in ("multi_label", "regression"):
            yield Problem(
                f"trainer.training_kwargs.label_smoothing_factor with model.task={task}.",
                why="it spreads one label over the others, and there isn't one of several.",
                fix="trainer.training_kwargs.label_smoothing_factor=0.",
            )


def accumulation_steps(*, global_batch_size: int, micro_batch_size: int, num_processes: int) -> int:
    """Micro-batches of one optimizer step on every process.

    Raises:
        ConfigError: the processes' micro-batches don't fill the step evenly; the message gives sizes that do.
    """
    if micro_batch_size < 1 or global_batch_size % (micro_batch_size * num_processes):
        what, _, fix = _indivisible(global_batch_size, micro_batch_size, num_processes).partition(" Fix: ")
        raise ConfigError(
            f"trainer.training_kwargs.{what}",
            why="every process runs the same number of micro-batches per optimizer step.",
            fix=fix,
        )
    return global_batch_size // (micro_batch_size * num_processes)


def _indivisible(global_batch_size: int, micro_batch_size: int, num_processes: int) -> str:
    unit = max(micro_batch_size, 1) * num_processes
    nearest = max(round(global_batch_size / unit), 1) * unit
    share, rest = divmod(global_batch_size, num_processes)
    sizes = [] if rest else [size for size in range(1, share + 1) if share % size == 0]
    closest = sorted(sorted(sizes, key=lambda size: abs(size - micro_batch_size))[:3])
    choices = f", or per_device_train_batch_size={' or '.join(map(str, closest))}" if closest else ""
    processes = f" × {num_processes} processes" if num_processes > 1 else ""
    return (
        f"per_device_train_batch_size={micro_batch_size}{processes} does not divide "
        f"trainer.global_batch_size={global_batch_size}. Fix: trainer.global_batch_size={nearest}{choices}."
    )


def steps_per_epoch(num_rows: int, *, global_batch_size: int) -> int:
    """Optimizer steps that go once over the rows; the last one may be short.

    Raises:
        DataError: the rows don't fill one step.
    """
    if num_rows < global_batch_size:
        raise DataError(
            f"{num_rows} training rows are fewer than the {global_batch_size} of one optimizer step.",
            why="not a single whole step could be made.",
            fix=f"trainer.global_batch_size={max(num_rows, 1)} or less, or more rows.",
        )
    return math.ceil(num_rows / global_batch_size)


def planned_steps(num_rows: int, *, global_batch_size: int, training_kwargs: Mapping[str, Any]) -> int:
    """Optimizer steps of the whole run: `max_steps` where it is positive, else `num_train_epochs` (3 if absent).

    Raises:
        DataError: the rows don't fill one step.
        ConfigError: no step is asked for.
    """
    epoch = steps_per_epoch(num_rows, global_batch_size=global_batch_size)
    max_steps = training_kwargs.get("max_steps", -1)
    epochs = training_kwargs.get("num_train_epochs", 3.0)
    steps = int(max_steps) if max_steps > 0 else math.ceil(epochs * epoch)
    if steps < 1:
        raise ConfigError(
            f"trainer.training_kwargs.num_train_epochs={epochs} and max_steps={max_steps} ask for no step at all.",
            fix="num_train_epochs above 0, or max_steps of 1 or more.",
        )
    return steps


def schedule_depends_on_length(training_kwargs: Mapping[str, Any]) -> bool:
    """Whether the learning rate at a step depends on how many steps the run has.

    Where it does, a longer run is another run from its first step. Where it doesn't, extending a finished run gives
    exactly the longer run.
    """
    schedule = training_kwargs.get("lr_scheduler_type", "linear")
    warmup = training_kwargs.get("warmup_steps", 0)
    return schedule not in _OPEN_ENDED_SCHEDULES or 0 < warmup < 1


def precision_problems(training_kwargs: Mapping[str, Any], *, has_gpu: bool) -> list[Problem]:
    """What of the number formats this machine can't compute with.

    Args:
        has_gpu: whether training will run on a GPU.
    """
    asked = [key for key in ("fp16", "bf16", "fp16_full_eval", "bf16_full_eval", "tf32") if training_kwargs.get(key)]
    if has_gpu:
        return []
    return [
        Problem(
            f"trainer.training_kwargs.{key}=true without a GPU.",
            why="a CPU computes 16-bit formats ten to fifty times slower than float32, and tf32 not at all.",
            fix=f"{key}=false, or run on a GPU.",
        )
        for key in asked
    ]
