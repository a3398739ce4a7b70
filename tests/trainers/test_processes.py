"""Real processes over gloo: the same update as one process, and the same bits after a resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tiny_models import save_tiny
from tiny_training import launch, tiny_trainer, weights

LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
SGD = {"optim": "sgd", "learning_rate": 0.1, "per_device_train_batch_size": 1, "eval_strategy": "epoch"}
EXACT: dict[str, dict[str, Any]] = {
    "full": {"batching": "random", "training_kwargs": SGD},
    "lora": {"batching": "length", "training_kwargs": SGD, "peft_kwargs": LORA},
    "distilbert": {"training_kwargs": {**SGD, "per_device_train_batch_size": 4}},
}
RESUMED: dict[str, Any] = {
    "config_overrides": {"hidden_dropout_prob": 0.2},
    "keep_last": 9,
    "training_kwargs": {
        "save_strategy": "steps",
        "save_steps": 1,
        "per_device_train_batch_size": 1,
        "num_train_epochs": 1,
    },
}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of this module in one start of two processes: importing takes them longer than training."""
    folder = tmp_path_factory.mktemp("two-processes")
    sources = {name: str(save_tiny(folder / f"source-{name}", name)) for name in ("bert", "distilbert")}
    specs = [
        {"directory": str(folder / name), "source": sources.get(name, sources["bert"]), **keys}
        for name, keys in EXACT.items()
    ]
    resumed = {"source": sources["bert"], **RESUMED}
    specs += [
        {"directory": str(folder / "whole"), **resumed},
        {"directory": str(folder / "killed"), "killed": [str(folder / "whole"), 2], "attempt": 2, **resumed},
        {"directory": str(folder / "stopped"), "signalled": [1, 2], **resumed},
    ]
    launch(2, specs, folder)
    return folder


@pytest.mark.parametrize("name", EXACT)
def test_two_processes_make_the_update_of_one(two_processes: Path, tmp_path: Path, name: str) -> None:
    """22 rows in steps of 8, 8 and 6; of the last one, two slots of the eight hold ghosts."""
    source = two_processes / f"source-{name}"
    source = source if source.exists() else two_processes / "source-bert"
    keys = {**EXACT[name], "training_kwargs": {**EXACT[name]["training_kwargs"], "per_device_train_batch_size": 8}}
    one = tiny_trainer(tmp_path / "one", source, **keys).train()
    frozen = {**keys, "training_kwargs": {**keys["training_kwargs"], "learning_rate": 0.0, "max_steps": 1}}
    tiny_trainer(tmp_path / "start", source, **frozen).train()
    start, alone, together = (weights(run) for run in (tmp_path / "start", tmp_path / "one", two_processes / name))
    apart = sum(float((together[key] - alone[key]).double().square().sum()) for key in alone)
    moved = sum(float((alone[key] - start[key]).double().square().sum()) for key in alone)
    assert (apart / moved) ** 0.5 < 1e-5
    result = json.loads((two_processes / name / "result.json").read_text())
    assert result["metrics"] == pytest.approx(one.metrics, rel=1e-5)


def test_logged_losses_are_those_of_one_process(two_processes: Path, tmp_path: Path) -> None:
    kwargs = {**SGD, "per_device_train_batch_size": 8}
    tiny_trainer(tmp_path / "one", two_processes / "source-bert", batching="random", training_kwargs=kwargs).train()
    files = [run / "metrics.jsonl" for run in (tmp_path / "one", two_processes / "full")]
    rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    for key in ("step", "loss", "tokens", "grad_norm", "eval_loss"):
        one, two = ([row[key] for row in side if key in row] for side in rows)
        assert two == pytest.approx(one, rel=1e-5)


def test_a_killed_run_of_two_processes_equals_one_never_killed(two_processes: Path) -> None:
    result = json.loads((two_processes / "killed" / "result.json").read_text())
    assert (result["first_step"], result["step"]) == (2, 3)
    files = [two_processes / run / "model" / "model.safetensors" for run in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    states = [two_processes / "whole" / "checkpoints" / "step-00000003" / f"rng_state_{rank}.pth" for rank in (0, 1)]
    assert states[0].read_bytes() != states[1].read_bytes()  # each has dropout of its own


def test_a_signal_to_one_process_stops_both_at_the_same_step(two_processes: Path) -> None:
    result = json.loads((two_processes / "stopped" / "result.json").read_text())
    assert (result["stopped_by"], result["step"]) == ("", 2)  # the first process got no signal
    files = [two_processes / run / "checkpoints" / "step-00000002" / "optimizer.pt" for run in ("whole", "stopped")]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_three_processes_add_in_the_same_order_after_a_resume(tmp_path: Path) -> None:
    """Of three terms the order of addition shows, which for two it can't."""
    source = str(save_tiny(tmp_path / "source"))
    keys = {"source": source, **RESUMED, "global_batch_size": 6}
    specs = [
        {"directory": str(tmp_path / "whole"), **keys},
        {"directory": str(tmp_path / "killed"), "killed": [str(tmp_path / "whole"), 2], "attempt": 2, **keys},
    ]
    launch(3, specs, tmp_path)
    files = [tmp_path / run / "model" / "model.safetensors" for run in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
