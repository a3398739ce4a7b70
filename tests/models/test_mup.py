"""μP: the table, its exact consequences for AdamW, and that it is the standard parametrization at base width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.utils import parametrize

from supertrainer.core.errors import ConfigError
from supertrainer.models.decoder import Decoder
from supertrainer.models.mup import MupTable, Role, parameter_groups
from tiny_mup import VOCAB, decoder_model, mup, some_tokens, started

ETA, DECAY = 0.01, 0.1
WIDE: dict[str, Any] = {"hidden_size": 64, "num_heads": 8, "num_kv_heads": 4, "ffn_size": 200}
NARROW = mup(16, base={"ffn_size": 48})


def step(decoder: Decoder, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    decoder(tokens[:, :-1], targets=tokens[:, 1:]).nll.backward()
    optimizer.step()
    optimizer.zero_grad()


def test_every_parameter_has_the_row_of_its_role() -> None:
    rules = decoder_model(**WIDE, qk_norm=True, parametrization=NARROW).table(VOCAB).rules
    held = {name.removeprefix("blocks.1."): rule for name, rule in rules.items() if not name.startswith("blocks.0.")}
    m, f = 4.0, 200 / 48
    hidden, norm = ("hidden", m, 0.2 / 2, 1 / 4, 4.0), ("hidden norm", 1.0, None, 1.0, 0.0)
    assert {name: (rule.role, rule.ratio, rule.std, rule.lr, rule.weight_decay) for name, rule in held.items()} == {
        "embedding.weight": ("embedding", 1.0, 0.2, 1.0, 1.0),
        "attention_norm.weight": norm,
        "attention.query.weight": hidden,
        "attention.key.weight": hidden,
        "attention.value.weight": hidden,
        "attention.output.weight": ("residual", m, 0.2 / 2 / 2, 1 / 4, 4.0),
        "attention.query_norm.weight": norm,
        "attention.key_norm.weight": norm,
        "ffn_norm.weight": norm,
        "ffn.gate.weight": hidden,
        "ffn.up.weight": hidden,
        "ffn.down.weight": ("residual", f, 0.2 / math.sqrt(f) / 2, 1 / f, f),
        "norm.weight": ("final norm", 1.0, None, 1.0, 0.0),
        "head.weight": ("head", 1.0, 0.2, 1.0, 1.0),
    }
    assert {rule.eps for rule in rules.values()} == {1 / 4}


def test_multipliers_of_the_forward_pass() -> None:
    chosen = mup(16, base={"num_layers": 1, "head_dim": 2, "num_heads": 8, "num_kv_heads": 4}, depth_alpha=1.0)
    model = decoder_model(**WIDE, parametrization={**chosen, "embedding_multiplier": 3.0, "output_multiplier": 6.0})
    found = model.table(VOCAB).multipliers
    assert (found.embedding, found.residual, found.output) == (3.0, 1 / 2, 6 / 4)
    assert found.attention == pytest.approx(math.sqrt(2) / 8, rel=1e-15)


def test_depth_scales_rates_of_blocks_and_keeps_the_start_of_the_base() -> None:
    chosen = mup(16, base={"num_layers": 1}, depth_alpha=0.5)
    rules = decoder_model(**{**WIDE, "num_layers": 4}, parametrization=chosen).table(VOCAB).rules
    query, output, norm = (
        rules[f"blocks.0.{name}.weight"] for name in ("attention.query", "attention.output", "ffn_norm")
    )
    assert (query.lr, norm.lr, rules["norm.weight"].lr) == (1 / 4 / 2, 1 / 2, 1.0)
    assert (query.eps, rules["embedding.weight"].eps) == (1 / 4 / 2, 1 / 4)
    assert output.std == pytest.approx(0.2 / 2 / math.sqrt(2))


def test_the_head_can_start_at_zero() -> None:
    decoder = started(decoder_model(parametrization={"zero_head": True}))
    tokens = some_tokens()
    loss = decoder(tokens, targets=tokens).nll / tokens.numel()
    assert loss.item() == pytest.approx(math.log(VOCAB), rel=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_at_the_base_it_is_the_standard_parametrization_to_the_bit(tied: bool) -> None:
    own = mup(32, base={"num_layers": 2}, depth_alpha=1.0)
    both = [decoder_model(tie_embeddings=tied, parametrization=chosen) for chosen in (own, {"name": "sp"})]
    decoders = [started(model) for model in both]
    for model, decoder in zip(both, decoders, strict=True):
        optimizer = torch.optim.AdamW(
            parameter_groups(decoder, model.table(VOCAB), lr=ETA, weight_decay=DECAY, eps=1e-8)
        )
        for seed in range(3):
            step(decoder, optimizer, some_tokens(seed=seed))
    for one, other in zip(*(decoder.parameters() for decoder in decoders), strict=True):
        assert torch.equal(one, other)
    assert torch.equal(*(decoder(some_tokens()) for decoder in decoders))


def test_the_first_update_of_every_role_has_its_size() -> None:
    """With eps → 0 Adam's first step is the rate times a sign."""
    model = decoder_model(**WIDE, qk_norm=True, parametrization=NARROW)
    decoder, table = started(model, dtype=torch.float64), model.table(VOCAB)
    before = {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}
    groups = parameter_groups(decoder, table, lr=ETA, weight_decay=0.0, eps=1e-60)
    tokens = torch.stack([torch.randperm(VOCAB), torch.randperm(VOCAB)])  # each token: no row without a gradient
    step(decoder, torch.optim.AdamW(groups), tokens)
    wanted = {Role.HIDDEN: 1 / 4}
    for name, parameter in decoder.named_parameters():
        role = table.rules[name].role
        size = (parameter - before[name]).square().mean().sqrt().item() / ETA
        expected = table.rules[name].lr if role is Role.RESIDUAL else wanted.get(role, 1.0)
        assert size == pytest.approx(expected, rel=1e-6), name


@pytest.mark.parametrize(("form", "power"), [("independent", 0), ("sqrt", -0.5), ("coupled", -1)])
def test_what_of_the_decay_stays_constant_over_width(form: str, power: float) -> None:
    for width in (16, 32, 64, 128):
        keys = {"hidden_size": width, "num_heads": width // 8, "num_kv_heads": width // 16, "ffn_size": 3 * width}
        model = decoder_model(**keys, parametrization=mup(16, weight_decay=form))
        groups = parameter_groups(
            model.build(VOCAB, device="meta"), model.table(VOCAB), lr=ETA, weight_decay=DECAY, eps=1e-8
        )
        products = {round(group["lr"] * group["weight_decay"] / (ETA * DECAY), 12) for group in groups}
        assert products == {0.0, 1.0, round((width / 16) ** power, 12)}, width


def test_groups_hold_every_parameter_once_under_wrappers_too() -> None:
    model = decoder_model(parametrization=mup(16))
    table = model.table(VOCAB)
    decoder = model.build(VOCAB, device="meta")
    for index, block in enumerate(decoder.blocks):
        decoder.blocks[index] = checkpoint_wrapper(block)
    groups = parameter_groups(decoder, table, lr=ETA, weight_decay=DECAY, eps=1e-8)
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted(id(parameter) for parameter in decoder.parameters())
    assert len(groups) == len({(group["lr"], group["weight_decay"], group["eps"]) for group in groups})
    assert all(group["initial_lr"] == group["lr"] for group in groups)


def unclassified(decoder: Decoder) -> None:
    decoder.extra = nn.Linear(2, 2)


def twice(decoder: Decoder) -> None:
    roles = decoder.roles

    def doubled() -> Iterator[tuple[nn.Module, Role]]:
        yield from roles()
        yield decoder.norm, Role.HEAD

    decoder.roles = doubled  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (unclassified, "extra.weight has 0 roles in the table of μP"),
        (twice, "norm.weight has 2 roles in the table of μP: final norm, head."),
    ],
)
def test_a_parameter_without_one_role_is_an_error(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Decoder], None], said: str
) -> None:
    model = decoder_model()
    decoder = model.build(VOCAB, device="meta")
    spoil(decoder)
    monkeypatch.setattr(model, "build", lambda *args, **kwargs: decoder)
    with pytest.raises(ConfigError, match=said):
        model.table(VOCAB)


def test_a_table_of_another_model_is_refused() -> None:
    table = decoder_model(tie_embeddings=True).table(VOCAB)
    with pytest.raises(ConfigError, match=r"head\.weight is not in the table of μP"):
        parameter_groups(decoder_model().build(VOCAB, device="meta"), table, lr=1.0, weight_decay=0.0, eps=1e-8)


class Divided(nn.Module):
    """A weight that is divided where it is used."""

    def __init__(self, ratio: float) -> None:
        super().__init__()
        self.ratio = ratio

    def forward(self, weight: Tensor) -> Tensor:
        return weight / self.ratio


def in_the_other_form(decoder: Decoder, table: MupTable) -> list[dict[str, Any]]:
    """Hidden weights m times as large and divided by m in the forward pass, with the base's own rate and decay."""
    groups = []
    for name, parameter in list(decoder.named_parameters()):
        rule = table.rules[name]
        module = decoder.get_submodule(name.rpartition(".")[0])
        if rule.ratio != 1.0:
            parameter.data.mul_(rule.ratio)
            parametrize.register_parametrization(module, "weight", Divided(rule.ratio), unsafe=True)
            parameter = module.parametrizations.weight.original
        groups.append(
            {
                "params": [parameter],
                "lr": ETA,
                "weight_decay": DECAY if rule.weight_decay else 0.0,
                "eps": 1e-4 * rule.eps / rule.ratio,
            }
        )
    return groups


def test_both_forms_of_the_paper_train_alike() -> None:
    """Tensor Programs V: Table 3, with multipliers on the weights, and Table 8, without, are one parametrization."""
    model = decoder_model(**WIDE, qk_norm=True, parametrization=NARROW)
    table = model.table(VOCAB)
    one, other = (started(model, dtype=torch.float64) for _ in range(2))
    optimizers = [
        torch.optim.AdamW(parameter_groups(one, table, lr=ETA, weight_decay=DECAY, eps=1e-4)),
        torch.optim.AdamW(in_the_other_form(other, table)),
    ]
    for seed in range(30):
        for decoder, optimizer in zip((one, other), optimizers, strict=True):
            step(decoder, optimizer, some_tokens(length=16, seed=seed))
    first, second = one(some_tokens()), other(some_tokens())
    assert (first - started(model, dtype=torch.float64)(some_tokens())).abs().max() > 0.1
    assert (first - second).abs().max() < 1e-10
