"""The loop over encoded rows: batch = single, gradients left alone, memory flat."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest
import torch

from supertrainer.data.collation import EncodedRows
from supertrainer.data.tokenization import encode_texts
from supertrainer.inference.logits import predict_logits
from supertrainer.models.saving import TrainedModel, load_trained
from tiny_models import save_tiny, tiny_texts

LABELS = ("bad", "fair", "good")


def classifier(directory: Path, model_type: str = "bert", **overrides: object) -> TrainedModel:
    return load_trained(save_tiny(directory, model_type, labels=LABELS, **overrides))


def encoded(trained: TrainedModel, count: int = 11) -> EncodedRows:
    return EncodedRows(encode_texts(tiny_texts(count), trained.tokenizer, max_length=64))


def in_order(trained: TrainedModel, rows: EncodedRows, *, batch_size: int, **place: int) -> torch.Tensor:
    logits = torch.full((len(rows), 3), torch.nan)
    batches = predict_logits(trained.model, rows, pad_token_id=0, batch_size=batch_size, **place)
    for batch, numbers in batches:
        assert logits[numbers].isnan().all(), "a row came twice"
        logits[numbers] = batch
    return logits


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert", "modernbert"])
def test_a_row_in_a_batch_equals_the_row_alone(tmp_path: Path, model_type: str) -> None:
    trained = classifier(tmp_path, model_type, initializer_range=0.2)
    rows = encoded(trained)
    alone = in_order(trained, rows, batch_size=1)
    assert alone.std() > 0.05
    # padding is masked, and what is left is the rounding of sums of another width
    torch.testing.assert_close(
        in_order(trained, rows, batch_size=11), alone, rtol=0, atol=1e-5 * float(alone.abs().max())
    )
    torch.testing.assert_close(
        in_order(trained, rows, batch_size=4), alone, rtol=0, atol=1e-5 * float(alone.abs().max())
    )


def test_the_value_of_the_pad_token_does_not_matter(tmp_path: Path) -> None:
    trained = classifier(tmp_path)
    rows = encoded(trained)
    first, second = (
        torch.cat([batch for batch, _ in predict_logits(trained.model, rows, pad_token_id=pad, batch_size=11)])
        for pad in (0, 9)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("world_size", [2, 3, 16])
def test_processes_share_the_rows_without_doubles(tmp_path: Path, world_size: int) -> None:
    trained = classifier(tmp_path)
    rows = encoded(trained)
    parts = [in_order(trained, rows, batch_size=4, rank=rank, world_size=world_size) for rank in range(world_size)]
    held = torch.stack([~part.isnan().any(dim=1) for part in parts]).sum(dim=0)
    assert held.tolist() == [1] * 11
    assert torch.equal(torch.stack(parts).nan_to_num(0).sum(dim=0), in_order(trained, rows, batch_size=4))


def test_the_caller_keeps_its_gradients_and_its_mode(tmp_path: Path) -> None:
    trained = classifier(tmp_path, hidden_dropout_prob=0.5)
    rows = encoded(trained)
    expected = in_order(trained, rows, batch_size=4)
    trained.model.train()
    for batch, _ in predict_logits(trained.model, rows, pad_token_id=0, batch_size=4):
        assert torch.is_grad_enabled()
        assert not batch.requires_grad
        assert not trained.model.training
    assert trained.model.training
    assert torch.equal(in_order(trained, rows, batch_size=4), expected)  # no dropout


def test_labels_are_not_shown_to_the_model(tmp_path: Path) -> None:
    trained = classifier(tmp_path)
    dataset = encode_texts(tiny_texts(3), trained.tokenizer, max_length=64).add_column("labels", [0, 1, 2])
    outputs = []
    trained.model.register_forward_pre_hook(lambda module, args, kwargs: outputs.append(set(kwargs)), with_kwargs=True)
    list(predict_logits(trained.model, EncodedRows(dataset), pad_token_id=0, batch_size=2))
    assert outputs == [{"input_ids", "attention_mask", "token_type_ids"}] * 2


def test_nothing_is_kept_of_a_batch_that_was_taken(tmp_path: Path) -> None:
    trained = classifier(tmp_path)
    rows = encoded(trained, count=40)
    taken: list[weakref.ref[torch.Tensor]] = []
    for batch, _ in predict_logits(trained.model, rows, pad_token_id=0, batch_size=4):
        taken.append(weakref.ref(batch))
        del batch
        gc.collect()
        assert sum(ref() is not None for ref in taken) <= 1  # the one that the generator is at
