"""Fine-tuning of causal language models: the same update however texts are split, padded or packed; resume; rates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from supertrainer.core.errors import ConfigError
from supertrainer.core.files import read_json
from supertrainer.core.records import read_records
from supertrainer.data.batching import BatchPlan
from tiny_llm import llm_trainer, save_decoder
from tiny_training import distance, killed_after, weights

LORA = {"r": 2, "target_modules": "all-linear", "lora_dropout": 0.0}
SGD = {"optim": "sgd", "learning_rate": 0.1, "num_train_epochs": 1, "warmup_steps": 0}


def trained(run: Path, source: Path, *, micro: int = 4, **keys: Any) -> dict[str, torch.Tensor]:
    kwargs = {"per_device_train_batch_size": micro, **SGD, **keys.pop("training_kwargs", {})}
    llm_trainer(run, source, training_kwargs=kwargs, **keys).train()
    return weights(run)


@pytest.mark.parametrize("peft_kwargs", [None, LORA])
@pytest.mark.parametrize(("model_type", "tied"), [("llama", True), ("gemma3_text", False)])
def test_the_micro_batch_and_the_padding_do_not_show(
    tmp_path: Path, model_type: str, tied: bool, peft_kwargs: dict[str, Any] | None
) -> None:
    """22 texts in steps of 8, 8 and 6: padded whole and one by one, and without padding in rows of 8, 2 and 1 texts."""
    source = save_decoder(tmp_path / "source", model_type, tie_word_embeddings=tied)
    keys: dict[str, Any] = {"peft_kwargs": peft_kwargs}
    frozen = {"learning_rate": 0.0, "max_steps": 1}
    start = trained(tmp_path / "start", source, **keys, training_kwargs=frozen)
    whole = trained(tmp_path / "whole", source, micro=8, **keys)
    for name, micro, packing in (
        ("split", 1, "none"),
        ("free", 8, "padding_free"),
        ("free-2", 2, "padding_free"),
    ):
        other = trained(tmp_path / name, source, micro=micro, packing=packing, **keys)
        assert distance(other, whole, start) < 1e-5, name
    losses = {
        name: [row["loss"] for row in read_records(tmp_path / name / "metrics.jsonl").rows]
        for name in ("whole", "split", "free")
    }
    assert losses["split"] == pytest.approx(losses["whole"], rel=2e-6)
    assert losses["free"] == pytest.approx(losses["whole"], rel=2e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packs_make_the_update_of_their_texts_one_by_one(tmp_path: Path, attention: str) -> None:
    """Every text is in the one step: in packs of 32 tokens, two a micro-batch or all; and by hand without packs."""
    source = save_decoder(tmp_path / "source", "llama")
    keys: dict[str, Any] = {"attention": attention, "packing": "packed"}
    trainer = llm_trainer(tmp_path / "count", source, **keys)
    packs, texts = trainer.train_rows, len(trainer.rows("train").plan.rows)
    assert texts == 22
    assert packs < 12
    whole = trained(tmp_path / "whole", source, micro=packs, global_batch_size=packs, **keys)
    split = trained(tmp_path / "split", source, micro=1, global_batch_size=packs, **keys)
    plain = trained(tmp_path / "plain", source, micro=11, global_batch_size=22, attention=attention)
    start = load_file(source / "model.safetensors")
    assert distance(split, whole, start) < 1e-5
    assert distance(plain, whole, start) < 1e-5
    losses = [read_records(tmp_path / name / "metrics.jsonl").rows[0]["loss"] for name in ("whole", "split", "plain")]
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=2e-6)
    tokens = [read_records(tmp_path / name / "metrics.jsonl").rows[0]["tokens"] for name in ("whole", "plain")]
    assert tokens[0] == tokens[1] == trainer.rows("train").lengths.sum()


def test_a_hand_written_loop_gives_the_same_weights(tmp_path: Path) -> None:
    """AdamW, warm-up and clipping from torch alone, text by text, with all logits."""
    source = save_decoder(tmp_path / "source")
    kwargs = {"max_grad_norm": 0.5, "optim": "adamw_torch", "per_device_train_batch_size": 2, "weight_decay": 0.0}
    trainer = llm_trainer(tmp_path / "ours", source, training_kwargs=kwargs)
    rows = trainer.rows("train")
    trainer.train()
    model = AutoModelForCausalLM.from_pretrained(source).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    plan = BatchPlan(rows.lengths, global_batch_size=8, seed=trainer.seed, batching="length")
    step = 0
    for epoch in range(2):
        for numbers in plan.step_rows(epoch):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1.0, step / 2)
            total, count = torch.zeros(()), 0
            for number in numbers:
                ids, labels = (torch.from_numpy(rows[number][name].astype("int64")) for name in ("input_ids", "labels"))
                total = total + F.cross_entropy(model(ids[None]).logits[0, :-1], labels[1:], reduction="sum")
                count += int((labels[1:] != -100).sum())
            (total / count).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
    assert step == 6
    ours, by_hand = weights(tmp_path / "ours"), model.state_dict()
    start = load_file(source / "model.safetensors")
    assert max(float((ours[name] - value).abs().max()) for name, value in start.items()) > 3e-3
    assert distance(ours, {name: by_hand[name] for name in ours}, start) < 2e-3  # Adam divides rounding by itself


def test_a_packed_adapter_resumes_to_the_bit(tmp_path: Path) -> None:
    """Killed after step 1 and after step 4 of 6, with dropout; the second one is in the second epoch."""
    source = save_decoder(tmp_path / "source")
    keys: dict[str, Any] = {
        "packing": "packed",
        "peft_kwargs": {**LORA, "lora_dropout": 0.2},
        "global_batch_size": 4,
        "lora_plus_ratio": 8.0,
        "keep_last": 10,
        "training_kwargs": {"save_strategy": "steps", "save_steps": 1, "per_device_train_batch_size": 2},
    }
    whole = tmp_path / "whole"
    llm_trainer(whole, source, **keys).train()
    steps = len(list((whole / "checkpoints").glob("step-*")))
    assert steps == 6
    for step in (1, 4):
        run = killed_after(whole, step, tmp_path / f"killed-{step}")
        llm_trainer(run, source, **keys).train()
        resumed, expected = weights(run), weights(whole)
        assert all(torch.equal(resumed[name], value) for name, value in expected.items())
        logged = [
            {row["step"]: (row["loss"], row["tokens"]) for row in read_records(path / "metrics.jsonl").rows}
            for path in (run, whole)
        ]
        assert logged[0] == logged[1]
        shutil.rmtree(run)


def test_a_text_without_anything_to_learn_counts_nothing(tmp_path: Path) -> None:
    """Rows that are all prompt, alone in their micro-batches: neither loss nor count, and no division by zero."""
    source = save_decoder(tmp_path / "source")
    keys: dict[str, Any] = {"rows": 8, "training_kwargs": {"learning_rate": 0.0}}
    trainer = llm_trainer(tmp_path / "some", source, **keys)
    rows = trainer.dataset.model_rows("train", None)
    flat = rows._flat["labels"]
    starts = rows._starts["labels"]
    flat = flat.copy()
    flat[: starts[5]] = -100
    rows._flat["labels"] = flat
    trainer.dataset.model_rows = lambda split, tokenizer: rows
    trained_loss = trainer_loss(trainer)
    model = AutoModelForCausalLM.from_pretrained(source)
    total, count = 0.0, 0
    for number in (5, 6, 7):
        ids, labels = (torch.from_numpy(rows[number][name].astype("int64")) for name in ("input_ids", "labels"))
        total += F.cross_entropy(model(ids[None]).logits[0, :-1], labels[1:], reduction="sum").item()
        count += int((labels[1:] != -100).sum())
    assert trained_loss == pytest.approx(total / count, rel=1e-6)


def trainer_loss(trainer: Any) -> float:
    trainer.train()
    return float(read_records(trainer.run.metrics_jsonl).rows[0]["loss"])


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_every_adapter_learns_under_gradient_checkpointing(tmp_path: Path, reentrant: bool | None) -> None:
    """Each lora_B is zero at first, and none is after a step, down to the first layer."""
    source = save_decoder(tmp_path / "source")
    kwargs: dict[str, Any] = {**SGD, "max_steps": 1, "gradient_checkpointing": True}
    if reentrant is not None:
        kwargs["gradient_checkpointing_kwargs"] = {"use_reentrant": reentrant}
    found = trained(tmp_path / "run", source, peft_kwargs=LORA, packing="packed", training_kwargs=kwargs)
    plain = trained(
        tmp_path / "plain", source, peft_kwargs=LORA, packing="packed", training_kwargs={**SGD, "max_steps": 1}
    )
    matrices = [name for name in found if "lora_B" in name]
    assert len(matrices) == 2 * 7
    assert all(found[name].any() for name in matrices)
    for name in matrices:
        torch.testing.assert_close(found[name], plain[name])


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_bnb_8bit", "adafactor", "lion_32bit"])
def test_b_matrices_learn_at_their_own_rate(tmp_path: Path, optim: str) -> None:
    """LoRA+: a first step takes a B matrix 16 times as far, and an A matrix as far as before."""
    source = save_decoder(tmp_path / "source")
    kwargs = {"optim": optim, "max_steps": 1, "warmup_steps": 0, "learning_rate": 1e-3, "weight_decay": 0.0}
    keys: dict[str, Any] = {"peft_kwargs": LORA, "packing": "packed", "training_kwargs": kwargs}
    plain, plus = tmp_path / "plain", tmp_path / "plus"
    llm_trainer(plain, source, **keys).train()
    llm_trainer(plus, source, lora_plus_ratio=16.0, **keys).train()
    one, other = weights(plain), weights(plus)
    for name in one:
        if "lora_B" in name:
            torch.testing.assert_close(other[name], 16 * one[name], rtol=1e-4, atol=1e-8)
            assert one[name].any()
        else:
            torch.testing.assert_close(other[name], one[name])
    rates = [read_records(run / "metrics.jsonl").rows[0]["lr"] for run in (plain, plus)]
    assert rates[0] == rates[1] == 1e-3


def test_evaluation_is_the_loss_over_all_labelled_tokens_whatever_the_batch(tmp_path: Path) -> None:
    source = save_decoder(tmp_path / "source")
    trainer = llm_trainer(tmp_path / "run", source)
    module, rows = trainer.build_module(), trainer.rows("validation")
    scores = [trainer.evaluate(module, rows, batch_size=size) for size in (1, 4, 9)]
    for score in scores[1:]:
        assert score == pytest.approx(scores[0], rel=1e-6)
    total, right, count = 0.0, 0, 0
    for number in range(len(rows)):
        ids, labels = (torch.from_numpy(rows[number][name].astype("int64")) for name in ("input_ids", "labels"))
        logits, wanted = module(ids[None]).logits[0, :-1], labels[1:]
        total += F.cross_entropy(logits, wanted, reduction="sum").item()
        count += int((wanted != -100).sum())
        right += int((logits.argmax(-1) == wanted).sum())
    assert scores[0]["loss"] == pytest.approx(total / count, rel=1e-6)
    assert scores[0]["accuracy"] == right / count
    assert scores[0]["perplexity"] == pytest.approx(torch.tensor(total / count).exp().item(), rel=1e-5)


def test_a_run_learns_evaluates_and_leaves_the_models_own_config(tmp_path: Path) -> None:
    """use_cache is off while training; the trained model, which writes text, has it as it had."""
    source = save_decoder(tmp_path / "source")
    assert read_json(source / "config.json")["use_cache"] is True
    kwargs = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 3, "learning_rate": 1e-2}
    kwargs["per_device_train_batch_size"] = 2
    trainer = llm_trainer(tmp_path / "run", source, packing="packed", training_kwargs=kwargs, global_batch_size=2)
    result = trainer.train()
    rows = read_records(tmp_path / "run" / "metrics.jsonl").rows
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] - 0.5
    assert {"eval_loss", "eval_perplexity", "eval_accuracy"} <= set(rows[-1])
    assert result.metrics["loss"] == pytest.approx(rows[-1]["eval_loss"])
    assert read_json(tmp_path / "run" / "model" / "config.json")["use_cache"] is True
    checkpoint = next((tmp_path / "run" / "checkpoints").glob("step-*"))
    assert json.loads((checkpoint / "config.json").read_text())["use_cache"] is True
    assert trainer.module.config.use_cache is True
    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    ids = torch.arange(10, 20)[None]
    assert torch.equal(reloaded(ids).logits, trainer.module.eval()(ids).logits)


def test_a_leaking_model_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    source = save_decoder(tmp_path / "source", "mamba")
    with pytest.raises(ConfigError, match=r"trainer\.packing=packed with a mamba model"):
        llm_trainer(tmp_path / "run", source, packing="packed", attention=None).train()


def test_a_model_with_a_state_is_trained_without_packs(tmp_path: Path) -> None:
    source = save_decoder(tmp_path / "source", "mamba")
    start = trained(tmp_path / "start", source, attention=None, training_kwargs={"learning_rate": 0.0, "max_steps": 1})
    whole = trained(tmp_path / "whole", source, micro=8, attention=None)
    split = trained(tmp_path / "split", source, micro=1, attention=None)
    assert distance(split, whole, start) < 1e-4
