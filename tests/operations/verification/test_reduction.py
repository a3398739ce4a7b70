"""What of a config is made small, float32 and still, and what is left as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from supertrainer.data.mllm_schema import MllmDatasetConfig
from supertrainer.models.architecture import override_config
from supertrainer.operations.verification import reduction
from supertrainer.operations.verification.reduction import reduced, with_sgd, without_dropout
from tiny_verification import LORA, tiny_config


def test_rows_steps_and_formats_are_reduced_and_the_recipe_is_not(tmp_path: Path) -> None:
    kwargs = ["trainer.training_kwargs.weight_decay=0.3", "+trainer.training_kwargs.bf16=true"]
    words = ["dataset.max_length=256", "dataset.limits.validation=3", "trainer.model_kwargs.dtype=bfloat16", *kwargs]
    config = reduced(
        tiny_config(tmp_path, *words, "trainer.training_kwargs.eval_strategy=steps", "trainer.select=best")
    )
    limits = config.dataset.limits
    assert (limits.train, limits.validation, limits.test, config.dataset.max_length) == (11, 3, 4, 128)
    trainer = config.trainer
    assert (trainer.global_batch_size, trainer.micro_batch_size, trainer.select) == (4, 4, "last")
    assert trainer.model_kwargs.dtype == "float32"
    given = trainer.training_kwargs
    assert "bf16" not in given
    assert (given["weight_decay"], given["learning_rate"], given["eval_strategy"]) == (0.3, 1e-3, "epoch")


def test_a_length_that_another_key_needs_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic import model_validator

    from supertrainer.data.schema import BertDatasetConfig

    class Windowed(BertDatasetConfig):
        @model_validator(mode="after")
        def _wide(self) -> Any:
            if self.max_length < 200:
                raise ValueError("too short")
            return self

    node = Windowed(_target_="x", source=str(tmp_path), max_length=512)
    assert reduction._few_rows(node).max_length == 256


def test_flash_attention_which_has_no_float32_is_replaced(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, "trainer.model_kwargs.attn_implementation=flash_attention_2")
    assert reduced(config).trainer.model_kwargs.attn_implementation == "auto"


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert", "electra", "deberta-v2"])
def test_every_dropout_of_an_architecture_is_zero(model_type: str, tmp_path: Path) -> None:
    architecture = AutoConfig.for_model(model_type)
    config = without_dropout(reduced(tiny_config(tmp_path, LORA)), architecture)
    given = dict(config.model.config)
    dropped = {key: value for key, value in given.items() if "drop" in key}
    assert dropped
    assert set(dropped.values()) == {0.0}
    assert given["hidden_size"] == 32
    assert config.trainer.peft_kwargs["lora_dropout"] == 0.0
    assert config.trainer.peft_kwargs["r"] == 8


def test_sgd_takes_no_keys_of_other_optimizers(tmp_path: Path) -> None:
    words = ["trainer.training_kwargs.optim=adamw_torch", "+trainer.training_kwargs.optim_args='foreach=false'"]
    words += ["trainer.training_kwargs.lr_scheduler_type=cosine"]
    kwargs = with_sgd(reduced(tiny_config(tmp_path, *words)), learning_rate=0.1).trainer.training_kwargs
    assert "optim_args" not in kwargs
    assert (kwargs["optim"], kwargs["learning_rate"], kwargs["lr_scheduler_type"]) == ("sgd", 0.1, "constant")
    assert (kwargs["warmup_steps"], kwargs["eval_strategy"]) == (0, "no")


def test_the_dropout_of_every_tower_is_zero_and_the_rest_of_it_is_left() -> None:
    architecture = AutoConfig.for_model(
        "idefics3",
        vision_config={"attention_dropout": 0.2, "hidden_size": 48},
        text_config={"model_type": "llama", "attention_dropout": 0.1, "hidden_size": 32},
    )
    still = override_config(architecture, reduction._at_zero({}, architecture.to_dict()))
    assert (still.vision_config.attention_dropout, still.text_config.attention_dropout) == (0.0, 0.0)
    assert (still.vision_config.hidden_size, still.text_config.hidden_size) == (48, 32)


def test_rows_with_pictures_are_not_shortened(tmp_path: Path) -> None:
    node = MllmDatasetConfig(_target_="x", source=str(tmp_path), max_length=4096)
    assert reduction._few_rows(node).max_length == 4096
