"""The config of each task's trainer and tracker. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from supertrainer.config.passthrough import Passthrough
from supertrainer.config.strict import FrozenMapping, NotIdentity, TargetModel
from supertrainer.config.tasks import NAMED_TASKS, task_of
from supertrainer.core.errors import ConfigError, Problem
from supertrainer.core.placement import placement
from supertrainer.models.methods import method_name, method_problems
from supertrainer.models.mllm_schema import MllmModelConfig, tower_problems
from supertrainer.models.schema import ModelKwargs
from supertrainer.trainers.kwargs import (
    CADENCE_KWARGS,
    REFUSED_BITSANDBYTES_KWARGS,
    REFUSED_PEFT_KWARGS,
    REFUSED_TRAINING_KWARGS,
)
from supertrainer.trainers.pretrain_schema import PretrainTrainerConfig as PretrainTrainerConfig
from supertrainer.trainers.ranges import range_problems
from supertrainer.trainers.steps import (
    accumulation_steps,
    indivisible,
    precision_problems,
    schedule_depends_on_length,
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
    def packs(self) -> bool:
        """Whether several texts share a row, so that rows are fewer than texts."""
        return False

    @property
    def micro_batch_size(self) -> int:
        """Rows that one process puts through the model at once."""
        return int(self.training_kwargs.get("per_device_train_batch_size", min(8, self.global_batch_size)))

    def schedule_by_length(self) -> tuple[str | None, str]:
        """The schedule where its rates depend on the length of the run, else None; and those whose rates don't."""
        others = "constant and constant_with_warmup (with a whole number of warmup_steps)"
        if not schedule_depends_on_length(self.training_kwargs):
            return None, others
        return f"lr_scheduler_type={self.training_kwargs.get('lr_scheduler_type', 'linear')}", others

    def seen_by_check(self) -> list[str]:
        """What the check before a submit depends on: runs that are alike in it are checked once."""
        held = [repr(self.model_kwargs), repr(self.peft_kwargs), repr(self.bitsandbytes_kwargs)]
        return [*held, str(self.global_batch_size), str(self.training_kwargs.get("max_steps"))]

    def rules(self, config: Any) -> Iterable[Problem]:
        if config.operation not in ("train", "check", "verify"):
            return
        yield from range_problems(self.training_kwargs, path="trainer.training_kwargs")
        if self.peft_kwargs is not None:
            yield from method_problems(self.peft_kwargs, bitsandbytes_kwargs=self.bitsandbytes_kwargs)
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
            raise ValueError(indivisible(size, micro, 1))
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
        return method_name(self.peft_kwargs, quantized=self.bitsandbytes_kwargs is not None)

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


class LanguageTrainerConfig(TrainerConfig):
    """Fine-tuning of a model that writes text."""

    lora_plus_ratio: float | None = Field(
        default=None,
        ge=1,
        allow_inf_nan=False,
        description="LoRA+ (Hayou et al. 2024): the learning rate of an adapter's B matrices as a multiple of "
        "learning_rate, 16 say; null: the same rate.",
    )

    @model_validator(mode="after")
    def _ratio_has_an_adapter(self) -> LanguageTrainerConfig:
        if self.lora_plus_ratio is not None and self.peft_kwargs is None:
            raise ValueError(
                "lora_plus_ratio without peft_kwargs: there are no B matrices. "
                "Fix: trainer/common/peft_kwargs@trainer.peft_kwargs=lora, or lora_plus_ratio=null."
            )
        return self


class LlmTrainerConfig(LanguageTrainerConfig):
    """Fine-tuning of a causal language model."""

    packing: Literal["none", "packed", "padding_free"] = Field(
        default="none",
        description="none: a text a row, padded; packed: as many texts in a row as fit into dataset.max_length, which "
        "don't see each other, and global_batch_size counts these rows; padding_free: the texts of a micro-batch one "
        "after the other without padding, which pays with flash_attention_2.",
    )
    sample_rows: Annotated[int, NotIdentity()] = Field(
        default=3, ge=0, description="Validation rows that are answered at each evaluation, for samples.jsonl; 0: none."
    )
    sample_tokens: Annotated[int, NotIdentity()] = Field(
        default=64, ge=1, description="Tokens of such an answer at most."
    )

    @property
    def packs(self) -> bool:
        return self.packing == "packed"

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        if config.operation not in ("train", "check", "verify"):
            return
        if self.packs and config.dataset is not None and vars(config.dataset).get("max_length") is None:
            yield Problem(
                "trainer.packing=packed with dataset.max_length=null.",
                why="a pack is as long as the longest text may be.",
                fix="dataset.max_length=2048, say, or trainer.packing=none.",
            )


class MllmTrainerConfig(LanguageTrainerConfig):
    """Fine-tuning of a vision-language model."""

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        if config.operation in ("train", "check", "verify") and isinstance(config.model, MllmModelConfig):
            yield from tower_problems(
                config.model, adapter=self.peft_kwargs is not None, quantized=self.bitsandbytes_kwargs is not None
            )
