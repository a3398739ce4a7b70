"""Losses of given answers are the library's, whatever the batch."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core.errors import SupertrainerError
from supertrainer.data.collation import EncodedRows
from supertrainer.inference import token_losses
from supertrainer.inference.token_losses import predict_token_losses
from tiny_chats import ARCHITECTURES, tiny_chat_model, tiny_prompts

PROMPTS = tiny_prompts(7)


def encoded(prompts: list[list[int]] = PROMPTS) -> EncodedRows:
    """Rows whose tokens count from the third on; the last row has no label at all."""
    labels = [[-100, -100, *ids[2:]] for ids in prompts[:-1]] + [[-100] * len(prompts[-1])]
    return EncodedRows(datasets.Dataset.from_dict({"input_ids": prompts, "labels": labels}))


def by_row(model: Any, *, batch_size: int = 3) -> list[tuple[Tensor, Tensor]]:
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for losses, numbers in predict_token_losses(model, encoded(), pad_token_id=0, batch_size=batch_size):
        parts = zip(losses.losses.split(list(losses.counts)), losses.right.split(list(losses.counts)), strict=True)
        found |= dict(zip(numbers, parts, strict=True))
    return [found[number] for number in range(len(PROMPTS))]


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_losses_are_those_of_the_library_one_row_at_a_time(model_type: str) -> None:
    model = tiny_chat_model(model_type)
    for ids, (losses, right) in zip(PROMPTS[:-1], by_row(model), strict=False):
        logits = model(input_ids=torch.tensor([ids])).logits[0, 1:-1]
        wanted = torch.tensor(ids[2:])
        reference = F.cross_entropy(logits, wanted, reduction="none")
        torch.testing.assert_close(losses.float(), reference, rtol=1e-5, atol=1e-5)
        assert right.tolist() == (logits.argmax(dim=1) == wanted).tolist()


def test_a_row_without_labels_has_no_losses() -> None:
    assert [len(losses) for losses, _ in by_row(tiny_chat_model())] == [*(len(ids) - 2 for ids in PROMPTS[:-1]), 0]
    assert [len(losses) for losses, _ in by_row(tiny_chat_model(), batch_size=1)][-1] == 0


def test_a_batch_of_too_many_logits_is_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = tiny_chat_model(), []
    whole = by_row(model, batch_size=7)
    monkeypatch.setattr(token_losses, "LOGIT_BYTES", 4 * 98 * 20 * 2)
    model.register_forward_pre_hook(lambda _, args, kwargs: batches.append(kwargs["input_ids"].shape), with_kwargs=True)
    parted = by_row(model, batch_size=7)
    assert all(rows * width <= 40 for rows, width in batches)
    assert len(batches) > 1
    for (first, _), (second, _) in zip(whole, parted, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-5)


def test_logits_are_made_only_where_a_label_follows() -> None:
    model, shapes = tiny_chat_model(), []
    model.lm_head.register_forward_hook(lambda _, args, output: shapes.append(output.shape[1]))
    by_row(model, batch_size=1)
    assert sorted(shapes) == sorted(len(ids) - 2 for ids in PROMPTS[:-1])


def test_losses_that_are_no_numbers_are_refused() -> None:
    model = tiny_chat_model()
    torch.nn.init.constant_(model.lm_head.weight, float("nan"))
    with pytest.raises(SupertrainerError, match="NaN or infinite"):
        by_row(model)
