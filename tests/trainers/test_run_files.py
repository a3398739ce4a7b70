"""What a run leaves in its directory, and how it ends: files, curves, signals, faults."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from supertrainer.core.errors import CheckpointError, ConfigError, DataError, SupertrainerError
from supertrainer.core.records import read_records
from supertrainer.models.saving import load_trained
from supertrainer.trainers import base
from supertrainer.trainers.checkpointing import checkpoint_bytes
from supertrainer.trainers.stop_request import SIGNALS, StopRequest
from tiny_models import save_tiny
from tiny_training import LABELS, signals, tiny_trainer

LORA = {"r": 2, "target_modules": ["query", "value", "dense"]}


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_every_logged_step_is_a_row_and_every_evaluation(tmp_path: Path) -> None:
    kwargs = {"logging_steps": 2, "eval_strategy": "epoch"}
    trainer = tiny_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), training_kwargs=kwargs, attempt=3)
    result = trainer.train()
    rows = read_records(tmp_path / "run" / "metrics.jsonl").rows
    assert [(row["step"], "loss" in row, "eval_loss" in row) for row in rows] == [
        (2, True, False),
        (3, False, True),
        (4, True, False),
        (6, True, False),
        (6, False, True),
    ]
    training, evaluation = rows[0], rows[1]
    assert set(training) == {
        *("attempt", "step", "epoch", "tokens", "loss", "lr"),
        *("grad_norm", "tokens_per_second", "mfu", "peak_memory_gib"),
    }
    assert (training["attempt"], training["mfu"], training["lr"], rows[2]["lr"]) == (3, None, 0.0005, 0.001)
    assert training["peak_memory_gib"] > 0.1
    lengths = trainer.rows("train").lengths
    assert rows[-1]["tokens"] == 2 * int(lengths.sum())
    assert evaluation["epoch"] == 1.0
    assert {name.removeprefix("eval_") for name in evaluation if name.startswith("eval_")} == set(result.metrics)
    assert result.metrics["loss"] == rows[-1]["eval_loss"]


def test_a_checkpoint_holds_no_pickled_arguments_and_the_model_is_a_plain_directory(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    tiny_trainer(tmp_path / "run", source).train()
    assert names(tmp_path / "run" / "checkpoints" / "step-00000006") == [
        *("config.json", "manifest.json", "model.safetensors", "optimizer.pt", "rng_state.pth", "scheduler.pt"),
        *("tokenizer.json", "tokenizer_config.json", "trainer_state.json"),
    ]
    assert names(tmp_path / "run" / "model") == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert names(tmp_path / "run") == ["checkpoints", "metrics.jsonl", "model"]
    assert load_trained(tmp_path / "run").label_names == LABELS
    trainer_state = json.loads((tmp_path / "run" / "checkpoints" / "step-00000006" / "trainer_state.json").read_text())
    assert trainer_state["log_history"] == []


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_every_adapter_and_the_head_move(tmp_path: Path, reentrant: bool | None) -> None:
    """With recomputed activations too, where frozen embeddings can cut the layers off from any gradient."""
    source = save_tiny(tmp_path / "source")
    kwargs: dict[str, Any] = {"num_train_epochs": 1, "warmup_steps": 0}
    if reentrant is not None:
        kwargs |= {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
    trainer = tiny_trainer(tmp_path / "run", source, training_kwargs=kwargs, peft_kwargs=LORA)
    head = trainer.model.build(label_names=LABELS, seed=trainer.seed).classifier.weight
    trainer.train()
    saved = load_file(tmp_path / "run" / "model" / "adapter_model.safetensors")
    added = {name: value for name, value in saved.items() if "lora_B" in name}
    assert len(added) == 2 * 5 + 1  # query, value and three dense of each layer, and the pooler
    assert all(bool((value != 0).any()) for value in added.values())
    assert not torch.equal(saved["base_model.model.classifier.weight"], head)


def test_recomputed_activations_change_nothing(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    files = []
    for checkpointing in (False, True):
        run = tmp_path / f"run-{checkpointing}"
        tiny_trainer(run, source, training_kwargs={"gradient_checkpointing": checkpointing}, peft_kwargs=LORA).train()
        files.append(load_file(run / "model" / "adapter_model.safetensors"))
    for name, value in files[0].items():
        torch.testing.assert_close(files[1][name], value, rtol=0, atol=1e-6)


def test_curves_are_read_back_and_a_resume_doubles_none(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    kwargs = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "epoch"}
    keys = {"training_kwargs": kwargs, "tensorboard": True, "keep_last": 9}
    tiny_trainer(tmp_path / "run", source, **keys).train()
    for step in (4, 6):  # killed after step 2's checkpoint, when the curves were six steps long
        folder = tmp_path / "run" / "checkpoints" / f"step-{step:08d}"
        folder.rename(tmp_path / folder.name)
    tiny_trainer(tmp_path / "run", source, attempt=2, **keys).train()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert [step for step, _ in losses] == [1, 2, 3, 4, 5, 6]
    rows = {row["step"]: row["loss"] for row in read_records(tmp_path / "run" / "metrics.jsonl").rows if "loss" in row}
    assert [value for _, value in losses] == pytest.approx([rows[step] for step in range(1, 7)], rel=1e-6)
    assert [event.step for event in events.Scalars("eval_accuracy")] == [3, 6]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_saves_the_step_and_the_next_start_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    source = save_tiny(tmp_path / "source")
    dropout = {"config_overrides": {"hidden_dropout_prob": 0.2}}
    tiny_trainer(tmp_path / "whole", source, **dropout).train()
    before = [signal.getsignal(each) for each in SIGNALS]
    with signals(0, 2, number):
        stopped = tiny_trainer(tmp_path / "run", source, **dropout).train()
    assert (stopped.stopped_by, stopped.step, stopped.planned_steps, stopped.selected_step) == (number.name, 2, 6, None)
    assert names(tmp_path / "run" / "checkpoints") == [".incoming", "step-00000002"]
    assert not (tmp_path / "run" / "model").exists()
    assert [signal.getsignal(each) for each in SIGNALS] == before
    done = tiny_trainer(tmp_path / "run", source, attempt=2, **dropout).train()
    assert (done.stopped_by, done.first_step) == (None, 2)
    files = [tmp_path / run / "model" / "model.safetensors" for run in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_signal_in_the_last_step_stops_nothing(tmp_path: Path) -> None:
    with signals(0, 6):
        result = tiny_trainer(tmp_path / "run", save_tiny(tmp_path / "source")).train()
    assert (result.stopped_by, result.selected_step) == (None, 6)


def test_a_second_ctrl_c_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 101.0, 103.0])
    monkeypatch.setattr("supertrainer.trainers.stop_request.time.monotonic", lambda: next(clock))
    stop = StopRequest()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # a second later: torchrun handing the same one on
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_a_loss_that_is_not_finite_ends_the_run_with_its_step(tmp_path: Path) -> None:
    kwargs = {"optim": "sgd", "learning_rate": 1e30, "warmup_steps": 0, "max_grad_norm": 0.0, "save_strategy": "steps"}
    trainer = tiny_trainer(
        tmp_path / "run",
        save_tiny(tmp_path / "source"),
        training_kwargs={**kwargs, "save_steps": 1, "logging_steps": 100},
    )
    with pytest.raises(SupertrainerError, match="the loss of step 2 is nan"):
        trainer.train()
    assert names(tmp_path / "run" / "checkpoints") == [".incoming", "step-00000001"]


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save_tiny(tmp_path / "source")
    keys = {"training_kwargs": {"save_strategy": "steps", "save_steps": 2}, "keep_last": 9}
    tiny_trainer(tmp_path / "whole", source, **keys).train()
    write_model, written = base.write_model, []

    def fills_up(*args: Any, **kwargs: Any) -> None:
        written.append(args)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        write_model(*args, **kwargs)

    monkeypatch.setattr(base, "write_model", fills_up)
    with pytest.raises(CheckpointError, match=r"(?s)step 4 can't be written.*step 2, the last good one, is intact"):
        tiny_trainer(tmp_path / "run", source, **keys).train()
    assert names(tmp_path / "run" / "checkpoints") == [".incoming", "step-00000002"]
    assert names(tmp_path / "run" / "checkpoints" / ".incoming") == []
    result = tiny_trainer(tmp_path / "run", source, attempt=2, **keys).train()
    assert result.first_step == 2
    files = [tmp_path / run / "model" / "model.safetensors" for run in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_disk_without_room_for_a_checkpoint_is_told_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_trainer(tmp_path / "size", save_tiny(tmp_path / "source")).model
    assert checkpoint_bytes(model.build(label_names=LABELS, seed=1)) == 23619 * (4 + 8)
    assert checkpoint_bytes(model.build(label_names=LABELS, seed=1, peft_kwargs={"r": 2})) == (512 + 99) * (4 + 8)
    usage = shutil.disk_usage(tmp_path)._replace(free=200_000)
    monkeypatch.setattr("supertrainer.checkpoint.store.shutil.disk_usage", lambda path: usage)
    with pytest.raises(CheckpointError, match=r"(?s)0\.2 MiB free, a checkpoint needs 0\.3 MiB"):
        tiny_trainer(tmp_path / "run", tmp_path / "source").train()


def test_what_cannot_be_trained_is_told_before_training(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    with pytest.raises(DataError, match="22 training rows are fewer than the 32 of one optimizer step"):
        tiny_trainer(tmp_path / "few", source, global_batch_size=32).train()
    with pytest.raises(ConfigError, match="bf16=true without a GPU"):
        tiny_trainer(tmp_path / "bf16", source, training_kwargs={"bf16": True}).train()
    with pytest.raises(ConfigError, match="warmup_steps"):
        tiny_trainer(tmp_path / "warmup", source, training_kwargs={"warmup_steps": -1}).train()


def test_evaluation_without_rows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = tiny_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), training_kwargs={"eval_strategy": "epoch"})
    splits = dict(trainer.dataset.load())
    monkeypatch.setattr(trainer.dataset, "load", lambda: {"train": splits["train"]})
    with pytest.raises(
        ConfigError, match=r"(?s)eval_strategy=epoch, and the dataset has no validation.*splits\.validation=0\.1"
    ):
        trainer.train()
