"""The memory estimate: parts that can be counted by hand, and activations against what a real forward pass keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from supertrainer.core.placement import Placement
from supertrainer.trainers.memory import estimate_memory
from supertrainer.trainers.schema import BertTrainerConfig, LlmTrainerConfig
from supertrainer.trainers.tracing import trace_training
from tiny_models import tiny_config

CPU, GPU = Placement(processes=1, has_gpu=False), Placement(processes=1, has_gpu=True)


def skeleton(**overrides: Any) -> Any:
    with torch.device("meta"):
        return AutoModelForSequenceClassification.from_config(tiny_config(**overrides))


def trainer(**settings: Any) -> BertTrainerConfig:
    kwargs = {"per_device_train_batch_size": 4, "optim": "adamw_torch_fused", **settings.pop("training_kwargs", {})}
    return BertTrainerConfig(_target_="x", global_batch_size=4, training_kwargs=kwargs, **settings)


def saved_by_a_real_forward(model: Any, rows: int, length: int) -> int:
    """Bytes of all storages but weights that autograd keeps on the CPU."""
    weights = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.ones(rows, length, dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, length // 2 :] = 0
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = model(input_ids=ids, attention_mask=mask).logits
    assert logits.requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert"])
def test_activations_are_those_that_a_real_forward_keeps(model_type: str, attention: str) -> None:
    config = tiny_config(model_type, attn_implementation=attention)
    with torch.device("meta"):
        meta = AutoModelForSequenceClassification.from_config(config)
    real = AutoModelForSequenceClassification.from_config(config).train()
    traced = trace_training(
        meta, rows=4, length=32, on_gpu=False, half=None, accumulates=False, checkpointing=False
    )  # fmt: skip
    assert traced.activations == pytest.approx(saved_by_a_real_forward(real, 4, 32), rel=0.1)


def test_weights_gradients_and_optimizer_are_counted_exactly() -> None:
    model = skeleton()
    size = sum(parameter.numel() for parameter in model.parameters())
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    parts = estimate_memory(model, trainer(), length=16, there=CPU).parts
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (4 * size + buffers, 4 * size, 8 * size)
    plain = estimate_memory(model, trainer(training_kwargs={"optim": "sgd"}), length=16, there=CPU).parts
    assert plain["optimizer"] == 0


def test_the_peak_is_the_sum_of_its_parts() -> None:
    for there in (CPU, GPU):
        estimate = estimate_memory(skeleton(), trainer(), length=16, there=there)
        assert estimate.peak == sum(estimate.parts.values())
        assert (estimate.overhead is None) == (there is CPU)


def test_longer_rows_and_more_of_them_take_more_and_checkpointing_less() -> None:
    def activations(length: int, micro: int, **kwargs: Any) -> int:
        settings = trainer(training_kwargs={"per_device_train_batch_size": micro, **kwargs})
        return estimate_memory(skeleton(), settings, length=length, there=CPU).parts["activations"]

    assert activations(32, 4) == pytest.approx(2 * activations(32, 2), rel=0.02)
    assert activations(64, 4) > 2 * activations(32, 4) * 0.98
    assert activations(32, 4, gradient_checkpointing=True) < activations(32, 4) / 2


def test_eager_attention_keeps_the_scores_and_a_fused_one_does_not() -> None:
    """What grows with the square of the length is left where twice the half length is taken away."""

    def squares(attention: str) -> int:
        model = skeleton(attn_implementation=attention)
        whole, half = (
            estimate_memory(model, trainer(), length=length, there=GPU).parts["activations"] for length in (64, 32)
        )
        return whole - 2 * half

    layers, heads, rows = 2, 2, 4
    scores = layers * heads * rows * (64**2 - 2 * 32**2) * 4  # fp32 probabilities
    assert squares("eager") == pytest.approx(scores, rel=0.05)
    assert squares("sdpa") < 0.3 * scores


def test_several_processes_hold_gradients_on_their_way() -> None:
    there = Placement(processes=2, has_gpu=False)
    settings = trainer(training_kwargs={"per_device_train_batch_size": 2})
    parts = estimate_memory(skeleton(), settings, length=16, there=there).parts
    assert parts["gradients on their way"] == parts["gradients"]


def test_sixteen_bits_halve_the_weights_of_a_gpu() -> None:
    settings = trainer(model_kwargs={"dtype": "bfloat16"})
    half, whole = (estimate_memory(skeleton(), t, length=16, there=GPU).parts["weights"] for t in (settings, trainer()))
    assert half < 0.6 * whole


def decoder(**overrides: Any) -> Any:
    settings = {"vocab_size": 50_000, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.device("meta"):
        config = AutoConfig.for_model("llama", **settings, num_key_value_heads=1, intermediate_size=48, **overrides)
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("there", [CPU, GPU])
def test_the_logits_of_a_language_models_batch_are_in_no_estimate(there: Placement) -> None:
    """4 × 4096 tokens of 50,000 logits would be 3 GiB, and their loss as much again."""
    config = LlmTrainerConfig(
        _target_="x", global_batch_size=4, training_kwargs={"per_device_train_batch_size": 4, "eval_strategy": "epoch"}
    )
    parts = estimate_memory(decoder(), config, length=4096, there=there).parts
    # Gradients of the hidden states and of the output, the labels, and the loss.
    assert parts["logits"] == 4 * 4096 * 32 * 4 + 50_000 * 32 * 4 + 4 * 4096 * 8 + 4
    assert sum(parts.values()) < 2 * 2**30
