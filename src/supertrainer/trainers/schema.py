"""The config of each task's trainer and tracker, and what follows from it by arithmetic. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supertrainer.config.passthrough import Passthrough
from supertrainer.config.strict import FrozenMapping, NotIdentity, TargetModel
from supertrainer.core.distributed import world_size
from supertrainer.core.environment import has_gpu
from supertrainer.core.errors import ConfigError, DataError, Problem
from supertrainer.models.schema import ModelKwargs
from supertrainer.trainers.ranges import range_problems

_DERIVED = "it follows from trainer.global_batch_size, per_device_train_batch_size and the number of processes."
_HUB = "a trained model is published by an export, not while it trains."
_OPERATION = "the word `operation` says what is done: train, infer, benchmark or check."
_BATCHING = "trainer.batching=length or random."
_TRACKER = "tracker=tensorboard or none."
_BEST = "trainer.select=best takes the weights with the best metric.main."

REFUSED_TRAINING_KWARGS: Mapping[str, str] = {
    "output_dir": "run.root and run.name say where a run is.",
    "gradient_accumulation_steps": _DERIVED,
    "save_total_limit": "trainer.keep_last.",
    "load_best_model_at_end": _BEST,
    "metric_for_best_model": "metric.main.",
    "greater_is_better": "metric.greater_is_better.",
    "seed": "run.seed.",
    "data_seed": "run.seed.",
    "full_determinism": "run.deterministic.",
    "report_to": _TRACKER,
    "run_name": "run.name.",
    "project": _TRACKER,
    "resume_from_checkpoint": "nothing: the same command resumes by itself; run.fresh=true starts anew.",
    "ignore_data_skip": "nothing: a resumed run goes on with the row after the last one that it trained on.",
    "restore_callback_states_from_checkpoint": "nothing: what has to go on after a resume does.",
    "push_to_hub": _HUB,
    "hub_model_id": _HUB,
    "hub_strategy": _HUB,
    "hub_token": _HUB,
    "hub_private_repo": _HUB,
    "hub_always_push": _HUB,
    "hub_revision": _HUB,
    "do_train": _OPERATION,
    "do_eval": _OPERATION,
    "do_predict": _OPERATION,
    "remove_unused_columns": "dataset.columns says which columns are read.",
    "label_names": "dataset.columns.label.",
    "train_sampling_strategy": _BATCHING,
    "length_column_name": _BATCHING,
    "dataloader_drop_last": "nothing: every row is trained on in every epoch, and a short step weighs right.",
    "auto_find_batch_size": "per_device_train_batch_size; trainer.global_batch_size and the result stay the same.",
    "average_tokens_across_devices": "nothing: every row of a step weighs the same, wherever it is.",
    "prediction_loss_only": "metric names what is computed.",
    "include_for_metrics": "metric names what is computed.",
    "batch_eval_metrics": "nothing: metrics always stream.",
    "eval_accumulation_steps": "nothing: evaluation never holds the logits of all rows.",
    "eval_do_concat_batches": "nothing: evaluation never holds the logits of all rows.",
    "eval_use_gather_object": "nothing: processes add up their metrics.",
    "save_only_model": "nothing: a run can be resumed and extended only from full checkpoints.",
    "save_on_each_node": "nothing: the first process writes the run directory.",
    "enable_jit_checkpoint": "nothing: a signal saves at the next step.",
    "logging_nan_inf_filter": "nothing: a loss that isn't finite ends the run with an error.",
    "include_num_input_tokens_seen": "nothing: metrics.jsonl counts tokens.",
    "skip_memory_metrics": "nothing: metrics.jsonl has peak_memory_gib.",
    "log_on_each_node": "nothing: the first process logs.",
    "log_level": "SUPERTRAINER_LOG_LEVEL or --verbose where the entry point offers it.",
    "log_level_replica": "nothing: the first process logs.",
    "use_cpu": "nothing: a GPU is used where there is one; CUDA_VISIBLE_DEVICES= hides it.",
    "accelerator_config": "nothing: batches, accumulation and seeds are this trainer's.",
    "neftune_noise_alpha": "nothing: noise in the embeddings is not reproduced by a resume.",
    "use_liger_kernel": "nothing: encoders have no Liger kernels.",
    "torch_empty_cache_steps": "nothing: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True serves the same end.",
    "parallelism_config": "nothing: fine-tuning runs data parallel.",
    "deepspeed": "nothing: fine-tuning runs data parallel.",
    "fsdp": "nothing: fine-tuning runs data parallel.",
    "fsdp_config": "nothing: fine-tuning runs data parallel.",
}

# What changes neither the weights nor which of them are kept.
CADENCE_KWARGS = frozenset(
    {
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "logging_strategy",
        "logging_steps",
        "logging_first_step",
        "save_strategy",
        "save_steps",
        "disable_tqdm",
        "dataloader_num_workers",
        "dataloader_prefetch_factor",
        "dataloader_persistent_workers",
        "dataloader_pin_memory",
        "dataloader_multiprocessing_context",
        "dataloader_in_order",
        "ddp_timeout",
        "ddp_bucket_cap_mb",
        "ddp_backend",
        "ddp_find_unused_parameters",
        "ddp_broadcast_buffers",
        "ddp_static_graph",
        "debug",
    }
)

REFUSED_PEFT_KWARGS: Mapping[str, str] = {
    "task_type": "model.task says it.",
    "base_model_name_or_path": "model.source.",
    "revision": "model.revision.",
    "inference_mode": "nothing: an adapter is trained here.",
    "peft_type": "nothing: LoRA; use_dora and use_rslora choose its kin.",
    "auto_mapping": "nothing: it is filled in when the adapter is saved.",
    "peft_version": "nothing: it is filled in when the adapter is saved.",
}

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
    bitsandbytes_kwargs: None = Field(default=None, description="Quantized frozen weights: not for this task.")
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
        if config.operation not in ("train", "check"):
            return
        yield from range_problems(self.training_kwargs, path="trainer.training_kwargs")
        if config.cluster.name == "local":
            yield from precision_problems(self.training_kwargs, has_gpu=has_gpu())
        try:
            accumulation_steps(
                global_batch_size=self.global_batch_size,
                micro_batch_size=self.micro_batch_size,
                num_processes=world_size(),
            )
        except ConfigError as error:
            yield from error.problems

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> TrainerConfig:
        size, micro = self.global_batch_size, self.micro_batch_size
        if micro < 1 or size % micro:
            raise ValueError(_indivisible(size, micro, 1))
        return self

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


class BertTrainerConfig(TrainerConfig):
    """Fine-tuning of an encoder with a head."""


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
