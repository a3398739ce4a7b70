"""Packed texts are to a model as if each were alone, on every attention implementation of a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from supertrainer.core.errors import ConfigError
from supertrainer.data.packing import PackedRows, first_fit_decreasing, one_row_a_pack
from supertrainer.trainers.isolation import require_isolation
from tiny_llm import encoded, tiny_decoder

PACKABLE = ["llama", "qwen2", "gemma3_text", "cohere", "granite", "gpt2"]
ATTENTION = [(model, kind) for model in PACKABLE for kind in ("sdpa", "eager")]
ATTENTION += [("gemma2", "eager")]  # caps its scores, which sdpa can't


def packed(flat: bool) -> tuple[Any, PackedRows]:
    """Ten texts, some longer than Gemma's window of 4, in packs of up to 40 tokens of unequal length."""
    rows = encoded(10)
    plan = one_row_a_pack(rows.lengths) if flat else first_fit_decreasing(rows.lengths, capacity=40, seed=0)
    return rows, PackedRows(rows, plan, flat=flat)


@torch.no_grad()
def logits_of(model: Any, rows: PackedRows) -> torch.Tensor:
    """Of all documents, one after the other in the order of the plan, (T, V)."""
    batch = rows.collate([rows[pack] for pack in range(len(rows))], pad_token_id=0)
    batch.pop("labels")
    logits = model(**batch, use_cache=False).logits
    if len(logits) == 1:
        return logits[0]
    return torch.cat([line[:length] for line, length in zip(logits, rows.lengths, strict=True)])


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("model_type", "attention"), ATTENTION)
def test_packed_logits_are_those_of_the_texts_alone(model_type: str, attention: str, flat: bool) -> None:
    """In one forward pass of several rows with padding between them, or of one row."""
    model = tiny_decoder(model_type, attention=attention)
    rows, packs = packed(flat)
    together = logits_of(model, packs)
    with torch.no_grad():
        alone = torch.cat(
            [
                model(torch.from_numpy(rows[row]["input_ids"].astype(np.int64))[None]).logits[0]
                for row in packs.plan.rows
            ]
        )
    assert len(together) == rows.lengths.sum()
    torch.testing.assert_close(together, alone, rtol=0, atol=2e-5 * float(alone.abs().max()))


@pytest.mark.parametrize(("model_type", "attention"), ATTENTION)
def test_another_first_document_leaves_the_second_ones_logits_bit_equal(model_type: str, attention: str) -> None:
    model = tiny_decoder(model_type, attention=attention)
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    one = torch.arange(10, 19)[None]
    other = one.clone()
    other[0, :5] += 40
    with torch.no_grad():
        first, second = (model(ids, position_ids=positions, use_cache=False).logits for ids in (one, other))
    assert not torch.equal(first[0, :5], second[0, :5])
    assert torch.equal(first[0, 5:], second[0, 5:])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_an_attention_mask_lets_documents_see_each_other(attention: str) -> None:
    """Why a batch of packs has none."""
    model = tiny_decoder(attention=attention)
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    ids = torch.arange(10, 19)[None]
    with torch.no_grad():
        alone = model(ids[:, 5:]).logits
        masked = model(ids, position_ids=positions, attention_mask=torch.ones_like(ids), use_cache=False).logits
    assert (masked[:, 5:] - alone).abs().max() > 0.05 * alone.abs().max()


@pytest.mark.parametrize(("model_type", "attention"), ATTENTION)
def test_models_that_keep_documents_apart_are_accepted(model_type: str, attention: str) -> None:
    require_isolation(tiny_decoder(model_type, attention=attention), packing="packed")


def test_a_model_that_carries_a_state_along_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        require_isolation(tiny_decoder("mamba"), packing="packed")
    assert "trainer.packing=packed with a mamba model, whose documents would see each other" in str(caught.value)
    assert "another first document in a pack changes the second one's logits by" in str(caught.value)
    assert "trainer.packing=none" in str(caught.value)


def test_a_model_that_is_blind_to_positions_restarting_is_refused() -> None:
    """GPT-2 with positions of its own making: documents are apart, but each is read as if it stood elsewhere."""
    model = tiny_decoder("gpt2")
    model.transformer.wpe = ShiftedPositions(model.transformer.wpe)
    with pytest.raises(ConfigError, match=r"differ by .* in a pack and alone"):
        require_isolation(model, packing="packed")


class ShiftedPositions(torch.nn.Module):
    """Looks up the place in the row, whatever position it is told."""

    def __init__(self, table: torch.nn.Embedding) -> None:
        super().__init__()
        self.table = table

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return self.table(torch.arange(positions.shape[1])[None])


def test_looking_leaves_the_model_as_it_was() -> None:
    model = tiny_decoder().train()
    require_isolation(model, packing="packed")
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
