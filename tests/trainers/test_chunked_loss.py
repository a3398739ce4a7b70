"""The chunked loss is torch's cross-entropy over all logits, and never makes all of them."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from supertrainer.data.collation import IGNORED, collate
from supertrainer.inference import next_tokens
from supertrainer.models.adapters import add_adapter
from supertrainer.models.output import OutputTap, tap_output
from supertrainer.trainers.chunked_loss import causal_objective, next_token_count, summed_next_token_loss
from tiny_llm import encoded, tiny_decoder

TAPPABLE = ["llama", "qwen2", "gemma2", "gemma3_text", "cohere", "granite", "gpt2", "mamba"]


def batch_of(count: int = 6) -> dict[str, torch.Tensor]:
    rows = encoded(count)
    return collate([rows[number] for number in range(count)], pad_token_id=0)


def tapped_loss(model: Any, batch: dict[str, torch.Tensor], **options: Any) -> torch.Tensor:
    """The step's mean as training makes it: the tap open, logits of no position."""
    tap = tap_output(model)
    assert tap is not None
    objective = causal_objective(tap, **options)
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    with tap.open():
        outputs = model(**inputs, use_cache=False)
        assert outputs.logits.numel() == 0
        return objective.summed(outputs.logits, batch["labels"]) / objective.weight(batch["labels"])


def full_loss(model: Any, batch: dict[str, torch.Tensor], *, label_smoothing: float = 0.0) -> torch.Tensor:
    """torch's mean over the logits of everything."""
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    logits = model(**inputs, use_cache=False).logits
    return F.cross_entropy(
        logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten(), label_smoothing=label_smoothing
    )


def adapted(**options: Any) -> Any:
    return add_adapter(tiny_decoder(), {"r": 2, **options}, trained_whole=[], task_type="CAUSAL_LM", base=None, seed=0)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.requires_grad and p.grad is not None}


@pytest.mark.parametrize("logits_at_once", [1, 700, 2**22])
@pytest.mark.parametrize("tied", [False, True])
def test_loss_and_gradients_are_torchs(monkeypatch: pytest.MonkeyPatch, tied: bool, logits_at_once: int) -> None:
    """A token at a time, seven, and all at once."""
    monkeypatch.setattr(next_tokens, "CHUNK_LOGITS", logits_at_once)
    ours = tiny_decoder(tie_word_embeddings=tied)
    theirs, batch = copy.deepcopy(ours), batch_of()
    one, other = tapped_loss(ours, batch), full_loss(theirs, batch)
    one.backward()
    other.backward()
    assert one.item() == pytest.approx(other.item(), rel=1e-6)
    assert gradients(ours).keys() == gradients(theirs).keys()
    for name, expected in gradients(theirs).items():
        error = (gradients(ours)[name] - expected).abs().max() / expected.abs().max()
        assert error < 1e-6 * 5, name  # a token at a time adds in another order


@pytest.mark.parametrize("model_type", TAPPABLE)
def test_what_an_architecture_does_to_its_logits_is_in_the_loss(model_type: str) -> None:
    """Caps of Gemma 2, scales of Cohere and Granite."""
    ours = tiny_decoder(model_type)
    theirs, batch = copy.deepcopy(ours), batch_of()
    if model_type == "mamba":
        batch.pop("attention_mask")
    one, other = tapped_loss(ours, batch), full_loss(theirs, batch)
    one.backward()
    other.backward()
    assert one.item() == pytest.approx(other.item(), rel=2e-6)
    for name, expected in gradients(theirs).items():
        assert (gradients(ours)[name] - expected).abs().max() < 1e-5 * max(1e-3, float(expected.abs().max())), name


def test_a_scale_that_two_architectures_mean_differently_is_found_by_looking() -> None:
    """logits_scaling divides in Granite; in a model that multiplies by it, it multiplies."""
    model = tiny_decoder("granite")
    plain = tiny_decoder()
    tap, other = tap_output(model), tap_output(plain)
    assert tap is not None
    assert other is not None
    hidden = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(tap.logits(hidden), model.lm_head(hidden) / 4)
    torch.testing.assert_close(other.logits(hidden), plain.lm_head(hidden))

    class Multiplying(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            outputs = super().forward(*args, **kwargs)
            outputs.logits = outputs.logits * 16
            return outputs

    model.__class__ = Multiplying
    again = tap_output(model)
    assert again is not None
    torch.testing.assert_close(again.logits(hidden), model.lm_head(hidden) * 4)


def test_an_unknown_function_of_the_logits_falls_back_to_the_models_own(caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_decoder()

    class Strange(type(model)):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            outputs = super().forward(*args, **kwargs)
            outputs.logits = outputs.logits.sinh()
            return outputs

    model.__class__ = Strange
    assert tap_output(model) is None
    assert "all logits of a micro-batch are made" in caplog.text
    batch, objective = batch_of(), causal_objective(None)
    inputs = {name: values for name, values in batch.items() if name != "labels"}
    logits = model(**inputs).logits
    summed = objective.summed(logits, batch["labels"]) / objective.weight(batch["labels"])
    assert summed.item() == pytest.approx(full_loss(model, batch).item(), rel=1e-6)


def test_label_smoothing_is_torchs() -> None:
    ours = tiny_decoder()
    theirs, batch = copy.deepcopy(ours), batch_of()
    one, other = (
        tapped_loss(ours, batch, label_smoothing=0.2),
        full_loss(theirs, batch, label_smoothing=0.2),
    )
    one.backward()
    other.backward()
    assert one.item() == pytest.approx(other.item(), rel=1e-6)
    torch.testing.assert_close(gradients(ours)["lm_head.weight"], gradients(theirs)["lm_head.weight"])


def test_an_adapter_on_the_output_learns_as_with_all_logits() -> None:
    ours = adapted(target_modules=["lm_head", "q_proj"], init_lora_weights=False)
    theirs, batch = copy.deepcopy(ours), batch_of()
    tapped_loss(ours, batch).backward()
    full_loss(theirs, batch).backward()
    found, expected = gradients(ours), gradients(theirs)
    assert any("lm_head.lora_B" in name for name in expected)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)


def test_an_output_that_is_trained_whole_beside_an_adapter_learns_too() -> None:
    ours = adapted(target_modules=["q_proj"], modules_to_save=["lm_head"])
    theirs, batch = copy.deepcopy(ours), batch_of()
    tapped_loss(ours, batch).backward()
    full_loss(theirs, batch).backward()
    [name] = [name for name in gradients(theirs) if "lm_head" in name]
    torch.testing.assert_close(gradients(ours)[name], gradients(theirs)[name], rtol=1e-4, atol=1e-6)


def test_a_frozen_output_gets_no_gradient_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_decoder().requires_grad_(False)
    tap = tap_output(model)
    assert tap is not None
    hidden = torch.randn(5, 32, requires_grad=True)
    asked = []
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda loss, wanted: asked.append(len(wanted)) or grad(loss, wanted))
    summed_next_token_loss(hidden, torch.arange(5), tap=tap).backward()
    assert asked == [1]
    assert hidden.grad is not None
    assert model.lm_head.weight.grad is None


def test_the_first_token_of_a_row_is_no_label() -> None:
    labels = torch.tensor([[5, 6, IGNORED], [7, IGNORED, 8]])
    assert next_token_count(labels) == 2
    model = tiny_decoder()
    tap = tap_output(model)
    assert tap is not None
    with tap.open():
        outputs = model(torch.tensor([[5, 6, 7], [7, 9, 8]]), use_cache=False)
        summed = causal_objective(tap).summed(outputs.logits, labels)
    logits = model(torch.tensor([[5, 6, 7], [7, 9, 8]])).logits.log_softmax(dim=-1)
    assert summed.item() == pytest.approx(-(logits[0, 0, 6] + logits[1, 1, 8]).item(), rel=1e-6)


def test_a_micro_batch_without_a_label_has_no_loss_and_zero_gradients() -> None:
    """What a ghost row gives: every weight a gradient, so that processes stay in step, and none that moves it."""
    model, batch = tiny_decoder(), batch_of(2)
    batch["labels"][:] = IGNORED
    tap = tap_output(model)
    assert tap is not None
    with tap.open():
        inputs = {name: values for name, values in batch.items() if name != "labels"}
        loss = causal_objective(tap).summed(model(**inputs, use_cache=False).logits, batch["labels"])
    loss.backward()
    assert loss.item() == 0.0
    assert gradients(model).keys() == {name for name, _ in model.named_parameters()}
    assert all(not gradient.any() for gradient in gradients(model).values())


def test_the_output_layer_only_sees_labelled_positions_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_tokens, "CHUNK_LOGITS", 1000)  # ten tokens
    model, batch = tiny_decoder(), batch_of()
    seen: list[int] = []
    head = model.lm_head
    forward = head.forward
    head.forward = lambda hidden: (seen.append(hidden.shape[:-1].numel()), forward(hidden))[1]
    tapped_loss(model, batch).backward()
    looked, empty, *pieces = seen
    labels = int(next_token_count(batch["labels"]))
    assert looked == 2  # once, at what the architecture does to logits
    assert empty == 0
    assert pieces == [10] * (labels // 10) + [labels % 10] * bool(labels % 10)


def test_a_closed_tap_leaves_the_model_alone() -> None:
    model, batch = tiny_decoder(), batch_of(2)
    before = model(batch["input_ids"]).logits
    tap = tap_output(model)
    assert tap is not None
    with tap.open():
        model(batch["input_ids"])
    assert torch.equal(model(batch["input_ids"]).logits, before)
    assert tap.take() is None


def test_weights_of_sixteen_bits_get_the_sum_of_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand chunks of equal gradients: added up in bf16 they would stop growing at 256."""
    monkeypatch.setattr(next_tokens, "CHUNK_LOGITS", 1)

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2, 1, dtype=torch.bfloat16))

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return F.linear(hidden, self.weight)

    head = Head()
    tap = OutputTap(head, vocabulary=2, after=lambda logits: logits)
    hidden = torch.ones(1000, 1, dtype=torch.bfloat16)
    summed_next_token_loss(hidden, torch.zeros(1000, dtype=torch.long), tap=tap).backward()
    assert head.weight.grad is not None
    np.testing.assert_allclose(head.weight.grad.float().flatten().tolist(), [-500.0, 500.0], rtol=0.01)
