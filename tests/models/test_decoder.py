"""The decoder: isolated documents, restarting positions, and a loss that never has all logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from supertrainer.models import vocabulary_loss as losses
from supertrainer.models.decoder import Norm, attend, document_blocks, document_mask
from supertrainer.models.rotary import restarting_positions
from tiny_mup import VOCAB, decoder_model, mup, some_tokens, started

KEYS: dict[str, Any] = {"parametrization": mup(16, output_multiplier=3.0), "qk_norm": True}


def two_documents(rows: int = 2) -> Tensor:
    """Numbers of documents of 17 and 23 tokens."""
    return torch.tensor([[0] * 17 + [1] * 23]).expand(rows, 40)


def test_documents_packed_are_documents_alone() -> None:
    decoder, tokens = started(decoder_model(**KEYS)), some_tokens()
    packed = decoder(tokens, documents=two_documents())
    alone = torch.cat([decoder(tokens[:, :17]), decoder(tokens[:, 17:])], dim=1)
    assert (packed - alone).abs().max() < 1e-5
    assert (packed - decoder(tokens)).abs().max() > 0.1


def test_a_document_has_the_same_bits_wherever_it_stands() -> None:
    """Rotary positions are relative, so that only bits tell whether they restart."""
    decoder, tokens = started(decoder_model(**KEYS)), some_tokens(length=32)
    twice = decoder(tokens.repeat(1, 2), documents=torch.arange(2).repeat_interleave(32).expand(2, 64))
    assert torch.equal(twice[:, :32], twice[:, 32:])


def test_another_first_document_changes_no_bit_of_the_second() -> None:
    decoder, tokens = started(decoder_model(**KEYS)), some_tokens()
    other = tokens.clone()
    other[:, :17] = some_tokens(seed=1)[:, :17]
    before, after = (decoder(row, documents=two_documents()) for row in (tokens, other))
    assert torch.equal(before[:, 17:], after[:, 17:])
    assert not torch.equal(before[:, :17], after[:, :17])


def test_a_row_that_is_one_document_needs_no_mask() -> None:
    decoder, tokens = started(decoder_model(**KEYS)), some_tokens()
    assert torch.equal(decoder(tokens, documents=torch.full((2, 40), 3)), decoder(tokens))


def test_positions_restart_where_the_number_changes() -> None:
    documents = torch.tensor([[0, 0, 0, 1, 1, 2], [5, 5, 5, 5, 5, 5], [1, 2, 1, 1, 2, 2]])
    assert restarting_positions(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 0, 1]]


@pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile:UserWarning"
)  # 40 s, for a forward pass
def test_blocks_for_a_gpu_hide_what_the_mask_hides() -> None:
    documents = torch.tensor([[0] * 100 + [1] * 60 + [2] * 96, [0] * 256])
    query, key, value = torch.randn(3, 2, 4, 256, 8, generator=torch.Generator().manual_seed(0))
    masked = attend(query, key[:, :2], value[:, :2], mask=document_mask(documents), scale=0.5)
    blocks = document_blocks(documents)
    flexible = flex_attention(query, key[:, :2], value[:, :2], block_mask=blocks, scale=0.5, enable_gqa=True)
    assert (masked - flexible).abs().max() < 1e-5


def test_norms_have_the_gradient_of_their_formula() -> None:
    norm, generator = Norm(6, eps=1e-3).double(), torch.Generator().manual_seed(0)
    norm.weight.data.copy_(torch.randn(6, generator=generator))
    x = torch.randn(2, 3, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, weight: norm(x), (x, norm.weight))
    assert torch.allclose(norm(x), F.rms_norm(x, (6,), norm.weight, 1e-3), rtol=1e-12)


@pytest.mark.parametrize("z_loss", [0.0, 0.01])
@pytest.mark.parametrize("tied", [False, True])
def test_the_loss_path_is_the_logits_path(monkeypatch: pytest.MonkeyPatch, tied: bool, z_loss: float) -> None:
    monkeypatch.setattr(losses, "_ON_CPU", 7 * VOCAB)  # twelve chunks, the last a short one
    decoder = started(decoder_model(tie_embeddings=tied, **KEYS), dtype=torch.float64)
    tokens, targets = some_tokens(), some_tokens(seed=1)
    targets[0, :9] = -100
    logits = decoder(tokens, documents=two_documents())
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    z = z_loss * (logits.logsumexp(-1).square() * (targets != -100)).sum()
    sums = decoder(tokens, targets=targets, documents=two_documents(), z_loss=z_loss)
    assert [sums.nll.item(), sums.z_loss.item()] == pytest.approx([nll.item(), z.item()], rel=1e-12)
    parameters = list(decoder.parameters())
    wanted = torch.autograd.grad((nll + z) / 71, parameters)
    found = torch.autograd.grad((sums.nll + sums.z_loss) / 71, parameters)
    for one, other in zip(wanted, found, strict=True):
        assert (one - other).abs().max() < 1e-12
    with torch.no_grad():
        again = decoder(tokens, targets=targets, documents=two_documents(), z_loss=z_loss)
    assert again == sums


def test_rows_without_a_target_have_neither_loss_nor_gradient() -> None:
    decoder = started(decoder_model())
    sums = decoder(some_tokens(), targets=torch.full((2, 40), -100))
    sums.nll.backward()
    assert sums.nll.item() == 0
    assert all(not parameter.grad.any() for parameter in decoder.parameters())


def test_sums_of_16_bit_states_are_taken_in_float32() -> None:
    hidden = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    sums = losses.vocabulary_loss(hidden, torch.zeros(3, 8, dtype=torch.bfloat16), torch.zeros(2000, dtype=torch.long))
    assert sums.nll.dtype == torch.float32
    assert sums.nll.item() == pytest.approx(2000 * 1.0986123, rel=1e-5)
