"""Two real processes make the update of one, and the same metrics, for padded and packed language models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tiny_llm
from tiny_llm import llm_trainer, save_decoder
from tiny_training import launch, weights

SGD = {"optim": "sgd", "learning_rate": 0.1, "num_train_epochs": 1, "eval_strategy": "epoch", "warmup_steps": 0}
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
CASES: dict[str, dict[str, Any]] = {
    "tied": {"packing": "none"},
    "packed": {"packing": "packed", "peft_kwargs": LORA, "global_batch_size": 6},
    "padding_free": {"packing": "padding_free"},
}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case in one start of two processes: importing takes them longer than training."""
    folder = tmp_path_factory.mktemp("two-processes")
    source = str(save_decoder(folder / "source", tie_word_embeddings=True))
    kwargs = {**SGD, "per_device_train_batch_size": 1}
    specs = [
        {"directory": str(folder / name), "source": source, "training_kwargs": kwargs, **keys}
        for name, keys in CASES.items()
    ]
    launch(2, specs, folder, script=tiny_llm.__file__)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_make_the_update_of_one(two_processes: Path, tmp_path: Path, name: str) -> None:
    """Steps of which the last is short, so that a process has a ghost in place of a row."""
    source, size = two_processes / "source", CASES[name].get("global_batch_size", 8)
    kwargs = {**SGD, "per_device_train_batch_size": size}
    one = llm_trainer(tmp_path / "one", source, training_kwargs=kwargs, **CASES[name]).train()
    frozen = {**kwargs, "learning_rate": 0.0, "max_steps": 1}
    llm_trainer(tmp_path / "start", source, training_kwargs=frozen, **CASES[name]).train()
    start, alone, together = (weights(run) for run in (tmp_path / "start", tmp_path / "one", two_processes / name))
    apart = sum(float((together[key] - alone[key]).double().square().sum()) for key in alone)
    moved = sum(float((alone[key] - start[key]).double().square().sum()) for key in alone)
    assert moved > 0
    assert (apart / moved) ** 0.5 < 1e-5
    result = json.loads((two_processes / name / "result.json").read_text())
    assert result["metrics"] == pytest.approx(one.metrics, rel=1e-5)
