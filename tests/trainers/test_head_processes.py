"""Two real processes make the update of one, and the same metrics, for every head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tiny_models import save_tiny
from tiny_training import head_trainer, launch, weights

SGD = {"optim": "sgd", "learning_rate": 0.02, "num_train_epochs": 1, "eval_strategy": "epoch"}
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
CASES: dict[str, dict[str, Any]] = {
    "multi_label": {"task": "multi_label", "class_weights": "balanced"},
    "regression": {"task": "regression"},
    "windows": {"task": "regression", "dataset": {"max_length": 8, "long_texts": "stride", "overlap": 2}},
    "token_classification": {"task": "token_classification", "class_weights": "balanced"},
    "masked_lm": {"task": "masked_lm"},
    "quantized": {"task": "token_classification", "peft_kwargs": LORA, "bitsandbytes_kwargs": NF4},
}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case in one start of two processes: importing takes them longer than training."""
    folder = tmp_path_factory.mktemp("two-processes")
    source = str(save_tiny(folder / "source"))
    kwargs = {**SGD, "per_device_train_batch_size": 1}
    specs = [
        {"directory": str(folder / name), "source": source, "training_kwargs": kwargs, **keys}
        for name, keys in CASES.items()
    ]
    launch(2, specs, folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_make_the_update_of_one(two_processes: Path, tmp_path: Path, name: str) -> None:
    source, kwargs = two_processes / "source", {**SGD, "per_device_train_batch_size": 8}
    one = head_trainer(tmp_path / "one", source, training_kwargs=kwargs, **CASES[name]).train()
    frozen = {**kwargs, "learning_rate": 0.0, "max_steps": 1}
    head_trainer(tmp_path / "start", source, training_kwargs=frozen, **CASES[name]).train()
    start, alone, together = (weights(run) for run in (tmp_path / "start", tmp_path / "one", two_processes / name))
    apart = sum(float((together[key] - alone[key]).double().square().sum()) for key in alone)
    moved = sum(float((alone[key] - start[key]).double().square().sum()) for key in alone)
    assert (apart / moved) ** 0.5 < 1e-5
    result = json.loads((two_processes / name / "result.json").read_text())
    assert result["metrics"] == pytest.approx(one.metrics, rel=1e-3)
