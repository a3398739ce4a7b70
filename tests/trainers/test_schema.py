"""What follows from a trainer's config by arithmetic, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from supertrainer.config.strict import NotIdentity, TargetModel
from supertrainer.core.errors import ConfigError, DataError
from supertrainer.trainers.kwargs import REFUSED_PEFT_KWARGS, REFUSED_TRAINING_KWARGS
from supertrainer.trainers.schema import BertTrainerConfig, LlmTrainerConfig
from supertrainer.trainers.steps import (
    accumulation_steps,
    planned_steps,
    precision_problems,
    schedule_depends_on_length,
    steps_per_epoch,
)


def config(**keys: Any) -> BertTrainerConfig:
    return BertTrainerConfig(_target_="supertrainer.trainers.bert.BertTrainer", **keys)


def markers(field: str) -> Any:
    """The passthrough of a `*_kwargs` field."""
    annotated = BertTrainerConfig.model_fields[field].metadata
    return next(marker for marker in annotated if type(marker).__name__ == "Passthrough")


@pytest.mark.parametrize(
    ("size", "micro", "processes", "expected"),
    [(32, 8, 1, 4), (32, 8, 2, 2), (32, 8, 4, 1), (32, 32, 1, 1), (6, 1, 2, 3)],
)
def test_accumulation_follows_from_the_step(size: int, micro: int, processes: int, expected: int) -> None:
    assert accumulation_steps(global_batch_size=size, micro_batch_size=micro, num_processes=processes) == expected


def test_a_step_that_is_not_filled_evenly_says_which_sizes_are() -> None:
    with pytest.raises(ConfigError) as caught:
        accumulation_steps(global_batch_size=64, micro_batch_size=12, num_processes=4)
    assert str(caught.value) == (
        "ConfigError: trainer.training_kwargs.per_device_train_batch_size=12 × 4 processes does not divide "
        "trainer.global_batch_size=64.\n"
        "  Why: every process runs the same number of micro-batches per optimizer step.\n"
        "  Fix: trainer.global_batch_size=48, or per_device_train_batch_size=4 or 8 or 16."
    )


def test_processes_that_do_not_divide_the_step_leave_only_its_size() -> None:
    with pytest.raises(ConfigError, match=r"Fix: trainer\.global_batch_size=33\.$"):
        accumulation_steps(global_batch_size=32, micro_batch_size=1, num_processes=3)


def test_a_micro_batch_that_never_divides_is_refused_by_the_config() -> None:
    with pytest.raises(ValidationError, match=r"=12 does not divide trainer\.global_batch_size=32\. Fix: .*=36, or"):
        config(global_batch_size=32, training_kwargs={"per_device_train_batch_size": 12})
    with pytest.raises(ValidationError, match="=0 does not divide"):
        config(training_kwargs={"per_device_train_batch_size": 0})


def test_a_small_step_needs_no_micro_batch() -> None:
    assert config(global_batch_size=4).micro_batch_size == 4
    assert config(global_batch_size=64).micro_batch_size == 8


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({"num_train_epochs": 2}, 6),
        ({"num_train_epochs": 1.5}, 5),
        ({}, 9),
        ({"max_steps": 4}, 4),
        ({"max_steps": 4, "num_train_epochs": 2}, 4),
        ({"max_steps": -1, "num_train_epochs": 1}, 3),
    ],
)
def test_steps_are_planned_over_whole_epochs(kwargs: dict[str, Any], expected: int) -> None:
    assert steps_per_epoch(22, global_batch_size=8) == 3  # 8 + 8 + 6
    assert planned_steps(22, global_batch_size=8, training_kwargs=kwargs) == expected


def test_too_few_rows_are_told_before_training() -> None:
    with pytest.raises(DataError, match=r"(?s)7 training rows are fewer than the 8.*global_batch_size=7 or less"):
        planned_steps(7, global_batch_size=8, training_kwargs={})
    assert planned_steps(8, global_batch_size=8, training_kwargs={"num_train_epochs": 1}) == 1


def test_too_few_packs_are_told_as_packs() -> None:
    with pytest.raises(DataError, match=r"(?s)texts fill 7 packs, fewer than the 8.*=7 or less, trainer.packing=none"):
        planned_steps(7, global_batch_size=8, training_kwargs={}, packed=True)


def test_no_step_at_all_is_an_error() -> None:
    with pytest.raises(ConfigError, match="ask for no step at all"):
        planned_steps(8, global_batch_size=8, training_kwargs={"num_train_epochs": 0})


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, True),  # the library's default is linear
        ({"lr_scheduler_type": "linear"}, True),
        ({"lr_scheduler_type": "cosine", "warmup_steps": 10}, True),
        ({"lr_scheduler_type": "warmup_stable_decay"}, True),
        ({"lr_scheduler_type": "constant"}, False),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 10}, False),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 1}, False),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 0.1}, True),
        ({"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 10}, False),
    ],
)
def test_whether_a_run_can_be_extended_follows_from_its_schedule(kwargs: dict[str, Any], expected: bool) -> None:
    assert schedule_depends_on_length(kwargs) is expected


def test_sixteen_bits_want_a_gpu() -> None:
    kwargs = {"fp16": True, "bf16": False, "tf32": True}
    assert [problem.what for problem in precision_problems(kwargs, has_gpu=False)] == [
        "trainer.training_kwargs.fp16=true without a GPU.",
        "trainer.training_kwargs.tf32=true without a GPU.",
    ]
    assert precision_problems(kwargs, has_gpu=True) == []


def test_the_best_needs_an_evaluation() -> None:
    with pytest.raises(ValidationError, match="select=best without evaluation"):
        config(select="best")
    assert config(select="best", training_kwargs={"eval_strategy": "epoch"}).select == "best"
    with pytest.raises(ValidationError, match="save_strategy=best is not set here"):
        config(training_kwargs={"save_strategy": "best"})


@pytest.mark.parametrize("value", [None, {}])
def test_an_empty_choice_of_adapter_is_none(value: Any) -> None:
    assert config(peft_kwargs=value).peft_kwargs is None
    assert config(peft_kwargs={"r": 4}).peft_kwargs == {"r": 4}
    with pytest.raises(ValidationError, match="bitsandbytes_kwargs"):
        config(bitsandbytes_kwargs={"load_in_4bit": True})


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("output_dir", "x", "run.root and run.name say where a run is."),
        ("gradient_accumulation_steps", 4, "it follows from trainer.global_batch_size"),
        ("save_total_limit", 3, "trainer.keep_last."),
        ("load_best_model_at_end", True, "trainer.select=best"),
        ("seed", 1, "run.seed."),
        ("report_to", "wandb", "tracker=tensorboard or none."),
        ("train_sampling_strategy", "group_by_length", "trainer.batching=length or random."),
        ("push_to_hub", True, "published by an export"),
    ],
)
def test_what_one_place_decides_is_refused_with_that_place(key: str, value: Any, fix: str) -> None:
    [problem] = markers("training_kwargs").problems({key: value}, path="trainer.training_kwargs")
    assert problem.what == f"trainer.training_kwargs.{key}={value!r} is not set here."
    assert fix in problem.fix


def test_a_misspelt_key_has_its_nearest_name() -> None:
    [problem] = markers("training_kwargs").problems({"learning_ratee": 1e-4}, path="trainer.training_kwargs")
    assert problem.fix == "did you mean learning_rate?"
    [problem] = markers("peft_kwargs").problems({"target_module": ["query"]}, path="trainer.peft_kwargs")
    assert problem.fix == "did you mean target_modules?"


def test_every_refused_key_is_one_of_the_library() -> None:
    """A refusal of a key that was renamed away would hide the new name."""
    from peft import LoraConfig
    from transformers import TrainingArguments

    known = set(TrainingArguments.__dataclass_fields__)
    assert set(REFUSED_TRAINING_KWARGS) - known == set()
    assert set(REFUSED_PEFT_KWARGS) - set(LoraConfig.__dataclass_fields__) == set()


def test_the_micro_batch_is_no_part_of_a_runs_identity() -> None:
    assert "per_device_train_batch_size" in markers("training_kwargs").not_identity
    assert "learning_rate" not in markers("training_kwargs").not_identity
    assert "eval_steps" not in markers("training_kwargs").not_identity  # it decides which step can be the best


def test_the_schema_is_light() -> None:
    packages = ("trainers", "models", "inference", "inference.engines")
    imports = ", ".join(f"supertrainer.{package}.schema" for package in packages)
    code = f"import sys, {imports}; print(sorted({{'torch', 'transformers', 'peft', 'numpy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_component_of_ours_is_a_target() -> None:
    assert issubclass(BertTrainerConfig, TargetModel)


def llm(**values: Any) -> LlmTrainerConfig:
    return LlmTrainerConfig(_target_="x", **values)


@pytest.mark.parametrize(("packing", "max_length", "refused"), [("packed", None, True), ("packed", 64, False)])
def test_a_pack_needs_a_length(packing: str, max_length: int | None, refused: bool) -> None:
    node = SimpleNamespace(max_length=max_length)
    config = SimpleNamespace(operation="train", dataset=node)
    problems = [problem.what for problem in llm(packing=packing).rules(config)]
    assert problems == (["trainer.packing=packed with dataset.max_length=null."] if refused else [])


def test_lora_plus_needs_an_adapter() -> None:
    with pytest.raises(ValueError, match="there are no B matrices"):
        llm(lora_plus_ratio=16.0)
    assert llm(lora_plus_ratio=16.0, peft_kwargs={"r": 8}).lora_plus_ratio == 16.0


def test_packing_is_part_of_what_a_run_is() -> None:
    marked = [
        name
        for name, field in LlmTrainerConfig.model_fields.items()
        if any(isinstance(marker, NotIdentity) for marker in field.metadata)
    ]
    assert "packing" not in marked
    assert "keep_last" in marked
