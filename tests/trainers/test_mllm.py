"""Fine-tuning of vision-language models: the same update however rows are split, resume, and what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageTextToText

from supertrainer.core.files import read_json
from supertrainer.core.records import read_records
from supertrainer.models.processors import read_processor
from supertrainer.models.saving import load_trained
from tiny_mllm import logits, mllm, save_mllm, tiny_batch
from tiny_pictures import mllm_trainer
from tiny_training import distance, killed_after, weights

LORA = {"r": 2, "target_modules": "auto", "lora_dropout": 0.0}
TOWERS = {"vision": "lora", "projector": "full", "language": "lora"}
SGD = {"optim": "sgd", "learning_rate": 0.1, "num_train_epochs": 1, "warmup_steps": 0}


def trained(run: Path, source: Path, *, micro: int = 4, **keys: Any) -> dict[str, torch.Tensor]:
    kwargs = {"per_device_train_batch_size": micro, **SGD, **keys.pop("training_kwargs", {})}
    mllm_trainer(run, source, training_kwargs=kwargs, **keys).train()
    return weights(run)


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("idefics3", {}),
        ("qwen2_5_vl", {"peft_kwargs": LORA, "towers": TOWERS}),  # its own loss is a mean over each micro-batch
    ],
)
def test_the_micro_batch_does_not_show(tmp_path: Path, family: str, keys: dict[str, Any]) -> None:
    """22 rows with answers of one to nine tokens in steps of 8, 8 and 6, some without a picture: whole, one by one."""
    source = save_mllm(tmp_path / "source", family)
    keys = {"family": family, **keys}
    start = trained(tmp_path / "start", source, **keys, training_kwargs={"learning_rate": 0.0, "max_steps": 1})
    whole = trained(tmp_path / "whole", source, micro=8, **keys)
    split = trained(tmp_path / "split", source, micro=1, **keys)
    assert distance(split, whole, start) < 1e-5
    projector = [name for name in whole if "connector" in name or "merger" in name]
    assert all(not torch.equal(whole[name], start[name]) for name in projector)  # pictures were seen
    assert projector
    losses = [[row["loss"] for row in read_records(tmp_path / n / "metrics.jsonl").rows] for n in ("whole", "split")]
    assert losses[1] == pytest.approx(losses[0], rel=2e-6)


def test_a_resumed_run_is_the_uninterrupted_one_bitwise(tmp_path: Path) -> None:
    source = save_mllm(tmp_path / "source")
    keys: dict[str, Any] = {
        "peft_kwargs": {**LORA, "lora_dropout": 0.1},
        "towers": TOWERS,
        "training_kwargs": {"save_strategy": "steps", "save_steps": 1},
        "keep_last": 9,
    }
    mllm_trainer(tmp_path / "whole", source, **keys).train()
    mllm_trainer(killed_after(tmp_path / "whole", 4, tmp_path / "killed"), source, **keys).train()
    whole, resumed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    assert all(torch.equal(value, resumed[name]) for name, value in whole.items())
    checkpoint = tmp_path / "whole" / "checkpoints" / "step-00000004"
    assert (checkpoint / "processor_config.json").is_file()


def test_a_run_is_read_by_plain_transformers_with_its_processor(tmp_path: Path) -> None:
    source = save_mllm(tmp_path / "source")
    checkpointed = {"gradient_checkpointing": True, "eval_strategy": "epoch"}
    trainer = mllm_trainer(tmp_path / "run", source, training_kwargs={**checkpointed, "num_train_epochs": 1})
    trainer.train()
    folder = tmp_path / "run" / "model"
    batch = tiny_batch(mllm(source).processor())
    plain = AutoModelForImageTextToText.from_pretrained(folder).eval()
    assert torch.equal(logits(plain, batch), logits(trainer.module.eval(), batch))
    assert type(read_processor(folder)).__name__ == "Idefics3Processor"
    assert load_trained(folder).noted["task"] == "image_text_to_text"
    assert read_json(folder / "config.json")["text_config"]["use_cache"] in (True, None)
    rows = trainer.rows("validation")
    one, many = (trainer.evaluate(plain, rows, batch_size=size) for size in (1, 5))
    assert one["loss"] == pytest.approx(many["loss"], rel=1e-6)
    evaluated = [row for row in read_records(tmp_path / "run" / "metrics.jsonl").rows if "eval_loss" in row]
    assert evaluated[-1]["eval_loss"] == pytest.approx(one["loss"], rel=1e-6)
