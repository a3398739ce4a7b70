"""The update doesn't depend on how a step is split, and equals a loop written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from supertrainer.core.records import read_records
from supertrainer.data.batching import BatchPlan
from tiny_models import save_tiny
from tiny_training import LABELS, distance, tiny_trainer, weights

COLUMNS = ("input_ids", "token_type_ids")
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}


def trained(run: Path, source: Path, *, micro: int = 4, **keys: Any) -> dict[str, torch.Tensor]:
    kwargs = {"per_device_train_batch_size": micro, **keys.pop("training_kwargs", {})}
    tiny_trainer(run, source, training_kwargs=kwargs, **keys).train()
    return weights(run)


@pytest.mark.parametrize(("peft_kwargs", "batching"), [(None, "random"), (LORA, "length")])
@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert"])
def test_the_micro_batch_does_not_show(
    tmp_path: Path, model_type: str, peft_kwargs: dict[str, Any] | None, batching: str
) -> None:
    """22 rows in steps of 8, 8 and 6: whole, and row by row. With SGD, whose step is the gradient."""
    source = save_tiny(tmp_path / "source", model_type)
    keys = {"peft_kwargs": peft_kwargs, "batching": batching}
    sgd = {"optim": "sgd", "learning_rate": 0.1}
    before = trained(tmp_path / "start", source, **keys, training_kwargs={**sgd, "learning_rate": 0.0, "max_steps": 1})
    whole = trained(tmp_path / "whole", source, micro=8, **keys, training_kwargs=sgd)
    split = trained(tmp_path / "split", source, micro=1, **keys, training_kwargs=sgd)
    assert distance(split, whole, before) < 1e-5


def test_a_hand_written_loop_gives_the_same_weights(tmp_path: Path) -> None:
    """AdamW, warm-up and clipping from torch alone, over the same rows in the same order."""
    source = save_tiny(tmp_path / "source")
    kwargs = {"max_grad_norm": 0.5, "optim": "adamw_torch", "per_device_train_batch_size": 2}
    trainer = tiny_trainer(tmp_path / "ours", source, training_kwargs=kwargs)
    model = trainer.model.build(label_names=LABELS, seed=trainer.seed).train()
    rows = trainer.rows("train")
    trainer.train()

    named = list(model.named_parameters())
    decayed = [p for name, p in named if "bias" not in name and "LayerNorm" not in name]
    rest = [p for name, p in named if "bias" in name or "LayerNorm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=1e-3, eps=1e-8
    )
    plan = BatchPlan(rows.lengths, global_batch_size=8, seed=trainer.seed, batching="length")
    step = 0
    for epoch in range(2):
        for numbers in plan.step_rows(epoch):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, step / 2)
            losses = []
            for number in numbers:  # row by row: no padding, no masks
                row = rows[number]
                inputs = {
                    name: torch.from_numpy(row[name].astype("int64"))[None] for name in ("input_ids", "token_type_ids")
                }
                losses.append(F.cross_entropy(model(**inputs).logits, torch.tensor([row["labels"]])))
            torch.stack(losses).mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    assert step == 6
    ours, start = weights(tmp_path / "ours"), load_file(source / "model.safetensors")
    by_hand = model.state_dict()
    moved = {name: (ours[f"bert.{name}"] - value).abs().max() for name, value in start.items()}
    assert max(moved.values()) > 3e-3  # about five steps of 1e-3
    for name, value in ours.items():
        torch.testing.assert_close(
            value, by_hand[name], rtol=0, atol=3e-6, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_loss_and_the_gradient_norm_are_those_of_the_whole_step(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    rows = {}
    for micro in (8, 2):
        run = tmp_path / f"micro-{micro}"
        trained(run, source, micro=micro, training_kwargs={"num_train_epochs": 1})
        rows[micro] = read_records(run / "metrics.jsonl").rows
    assert [row["step"] for row in rows[8]] == [1, 2, 3]
    for key in ("loss", "grad_norm", "tokens"):
        assert [row[key] for row in rows[2]] == pytest.approx([row[key] for row in rows[8]], rel=2e-6)
    trained(tmp_path / "epoch", source, training_kwargs={"num_train_epochs": 1, "logging_steps": 3})
    [row] = read_records(tmp_path / "epoch" / "metrics.jsonl").rows
    of_rows = [size * each["loss"] for size, each in zip((8, 8, 6), rows[8], strict=True)]
    assert row["loss"] == pytest.approx(sum(of_rows) / 22, rel=1e-6)  # not the mean of three means


def test_label_smoothing_is_part_of_the_exact_loss(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    keys = {"optim": "sgd", "learning_rate": 0.1}
    before = trained(tmp_path / "start", source, training_kwargs={**keys, "learning_rate": 0.0})
    plain = trained(tmp_path / "plain", source, training_kwargs=keys)
    smooth = trained(tmp_path / "smooth", source, training_kwargs={**keys, "label_smoothing_factor": 0.3})
    split = trained(tmp_path / "split", source, micro=1, training_kwargs={**keys, "label_smoothing_factor": 0.3})
    assert distance(plain, smooth, before) > 0.1
    assert distance(split, smooth, before) < 1e-5


def test_evaluation_does_not_depend_on_its_batches(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path / "run", save_tiny(tmp_path / "source"))
    module = trainer.model.build(label_names=LABELS, seed=1)
    rows = trainer.rows("validation")
    whole = trainer.evaluate(module, rows, batch_size=9)
    for size in (1, 4):
        again = trainer.evaluate(module, rows, batch_size=size)
        assert again == pytest.approx(whole, rel=1e-6)
    assert whole["accuracy"] * 9 == pytest.approx(round(whole["accuracy"] * 9))


def test_the_state_of_an_evaluation_does_not_grow_with_rows(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    sizes = {}
    for rows in (9, 60):
        trainer = tiny_trainer(tmp_path / f"run-{rows}", source, validation=rows)
        module = trainer.model.build(label_names=LABELS, seed=1)
        encoded = trainer.rows("validation")
        trainer.evaluate(module, encoded, batch_size=4)
        assert trainer.metric.rows == len(encoded)
        sizes[len(encoded)] = trainer.metric.state().numel()
    assert len(sizes) == 2
    assert len(set(sizes.values())) == 1
