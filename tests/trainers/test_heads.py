"""Every head, trained in full, with an adapter, and with an adapter on 4-bit weights: exact, reloaded, resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from supertrainer.config.tasks import Task
from supertrainer.core.errors import DataError
from supertrainer.inference.logits import predict_logits
from supertrainer.models.saving import load_trained
from tiny_models import save_tiny
from tiny_training import distance, head_trainer, killed_after, weights

TASKS: tuple[Task, ...] = (
    "sequence_classification",
    "multi_label",
    "regression",
    "token_classification",
    "masked_lm",
)
LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
METHODS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"peft_kwargs": LORA},
    "qlora": {"peft_kwargs": LORA, "bitsandbytes_kwargs": NF4},
}
EVERY = pytest.mark.parametrize(("task", "method"), [(task, method) for task in TASKS for method in METHODS])
SGD = {"optim": "sgd", "learning_rate": 0.1, "num_train_epochs": 1}


def trained(run: Path, source: Path, task: Task, *, micro: int = 4, **keys: Any) -> dict[str, torch.Tensor]:
    kwargs = {"per_device_train_batch_size": micro, **SGD, **keys.pop("training_kwargs", {})}
    head_trainer(run, source, task, training_kwargs=kwargs, **keys).train()
    return weights(run)


@EVERY
def test_the_micro_batch_does_not_show(tmp_path: Path, task: Task, method: str) -> None:
    """22 rows in steps of 8, 8 and 6, whole and row by row, with SGD, whose step is the gradient."""
    source = save_tiny(tmp_path / "source")
    keys = METHODS[method]
    before = trained(tmp_path / "start", source, task, **keys, training_kwargs={"learning_rate": 0.0, "max_steps": 1})
    whole = trained(tmp_path / "whole", source, task, micro=8, **keys)
    split = trained(tmp_path / "split", source, task, micro=1, **keys)
    assert distance(split, whole, before) < 1e-5


@EVERY
def test_a_reloaded_model_has_the_trained_logits(tmp_path: Path, task: Task, method: str) -> None:
    trainer = head_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), task, **METHODS[method])
    built, build = [], trainer.model.build
    trainer.model.build = lambda **given: built.append(build(**given)) or built[0]
    trainer.train()
    read = load_trained(tmp_path / "run")
    assert (read.task, read.label_names) == (task, tuple(trainer.dataset.label_names))
    rows = trainer.rows("validation")
    logits = [next(predict_logits(model, rows, pad_token_id=0, batch_size=9))[0] for model in (built[0], read.model)]
    assert torch.equal(*logits)


@EVERY
def test_a_run_killed_and_resumed_equals_one_never_killed(tmp_path: Path, task: Task, method: str) -> None:
    """With dropout, in the second epoch, where a masked language model's masks are others."""
    source = save_tiny(tmp_path / "source")
    keys: dict[str, Any] = {
        "training_kwargs": {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "epoch"},
        "model": {"config_overrides": {"hidden_dropout_prob": 0.2}},
        "keep_last": 100,
        **METHODS[method],
    }
    head_trainer(tmp_path / "whole", source, task, **keys).train()
    head_trainer(killed_after(tmp_path / "whole", 4, tmp_path / "run"), source, task, **keys).train()
    expected, found = weights(tmp_path / "whole"), weights(tmp_path / "run")
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("method", ["lora", "qlora"])
@pytest.mark.parametrize("task", TASKS)
def test_gradients_reach_every_layer_under_checkpointing(tmp_path: Path, task: Task, method: str) -> None:
    """Recomputed activations hang on inputs that need no gradient: elsewhere only the top layer learnt."""
    kwargs = {"gradient_checkpointing": True, "max_steps": 1, "warmup_steps": 0}
    source = save_tiny(tmp_path / "source")
    head_trainer(tmp_path / "run", source, task, training_kwargs=kwargs, **METHODS[method]).train()
    found = {name: value for name, value in weights(tmp_path / "run").items() if "lora_B" in name}
    beside = {"masked_lm": 0, "token_classification": 0}.get(task, 1)  # a pooler
    assert len(found) == 12 + beside  # six linear layers in each of two layers
    assert all(value.abs().sum() > 0 for value in found.values())


def test_int8_weights_train_and_read_back(tmp_path: Path) -> None:
    trainer = head_trainer(
        tmp_path / "run",
        save_tiny(tmp_path / "source"),
        "token_classification",
        peft_kwargs=LORA,
        bitsandbytes_kwargs={"load_in_8bit": True},
    )
    built, build = [], trainer.model.build
    trainer.model.build = lambda **given: built.append(build(**given)) or built[0]
    trainer.train()
    rows, read = trainer.rows("validation"), load_trained(tmp_path / "run")
    logits = [next(predict_logits(model, rows, pad_token_id=0, batch_size=9))[0] for model in (built[0], read.model)]
    torch.testing.assert_close(*logits, rtol=1e-3, atol=1e-3)


def test_a_new_masked_language_model_starts_at_the_shares_of_its_training_tokens(tmp_path: Path) -> None:
    """Special tokens stand in no word, so they count as never seen."""
    trainer = head_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), "masked_lm")
    bias = trainer.build_module().get_output_embeddings().bias.detach()
    words = [word for text in trainer.dataset.load()["train"]["text"] for word in text.split()]
    ids = trainer.tokenizer.convert_tokens_to_ids(words)
    expected = (torch.bincount(torch.tensor(ids), minlength=100) + 1) / (len(ids) + 100)
    torch.testing.assert_close(bias.exp(), expected)
    assert float(bias[2].exp()) == pytest.approx(1 / (len(ids) + 100))


@pytest.mark.parametrize("task", TASKS)
def test_too_few_rows_for_a_step_are_told_before_training_whatever_the_head(tmp_path: Path, task: Task) -> None:
    trainer = head_trainer(tmp_path / "run", save_tiny(tmp_path / "source"), task, global_batch_size=32)
    with pytest.raises(DataError, match="22 training rows are fewer than the 32 of one optimizer step"):
        trainer.train()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("task", TASKS)
def test_an_evaluation_keeps_no_logits_whatever_the_head(tmp_path: Path, task: Task) -> None:
    """What is held of a row is nothing; of a number, the number and the true one, since ranks are no sums."""
    sizes = []
    for rows in (9, 45):
        trainer = head_trainer(tmp_path / f"run-{rows}", save_tiny(tmp_path / "source"), task, validation=rows)
        encoded = trainer.rows("validation")
        trainer.evaluate(trainer.build_module(), encoded, batch_size=4)
        sizes.append((trainer.metric.state().numel(), len(encoded)))
    (few, few_rows), (many, many_rows) = sizes
    assert many_rows > few_rows
    assert many - few == (2 * (many_rows - few_rows) if task == "regression" else 0)
