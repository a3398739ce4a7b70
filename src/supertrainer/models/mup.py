"""The one table of μP: what each parameter's initialisation, learning rate, weight decay and eps are multiplied with.

With m the ratio of a parameter's fan-in to the base's, m_L that of depths, for AdamW:

    role          std         lr                   weight decay      eps
    embedding     σ           1                    1                 1/M
    hidden        σ/√m        1/m · m_L^(α-1)      m                 1/M · m_L^(-α)
    residual      as hidden, and std × 1/√(2 L)
    hidden norm   1           m_L^(α-1)            0                 1/M · m_L^(-α)
    final norm    1           1                    0                 1/M
    head          σ           1                    1                 1/M

and in the forward pass: embeddings × α_in, attention × √(d_base)/d, residual branches × m_L^(-α), logits × α_out/M,
where M is the ratio of hidden sizes. m = 1 is bit-equal to the standard parametrization. L of 1/√(2 L) is the base's
where depth is scaled by α, and the model's otherwise.

Source: Yang et al. 2022, "Tensor Programs V" (Table 8); Dey et al. 2025, "Don't be lazy: CompleteP" (depth and eps);
Kosson et al. 2025, "Weight Decay may matter more than μP" (the independent form of weight decay).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from torch import nn

from supertrainer.core.errors import ConfigError
from supertrainer.models.decoder_schema import DecoderShape, Parametrization

if TYPE_CHECKING:
    from supertrainer.models.decoder import Decoder

# What torch's wrappers put into parameter names: compiled modules and checkpointed activations.
_WRAPPERS = frozenset({"_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module", "module"})


class Role(StrEnum):
    """What a parameter is for, which decides its row."""

    EMBEDDING = "embedding"
    HIDDEN = "hidden"
    RESIDUAL = "residual"  # a matrix whose result is added to the residual stream
    HIDDEN_NORM = "hidden norm"
    FINAL_NORM = "final norm"
    HEAD = "head"


_IN_BLOCKS = frozenset({Role.HIDDEN, Role.RESIDUAL, Role.HIDDEN_NORM})
_MATRICES = frozenset({Role.HIDDEN, Role.RESIDUAL})
_NORMS = frozenset({Role.HIDDEN_NORM, Role.FINAL_NORM})


@dataclass(frozen=True)
class Multipliers:
    """Of the forward pass.

    Attributes:
        attention: on the products of queries and keys: 1/√d in the standard parametrization.
    """

    attention: float
    embedding: float = 1.0
    residual: float = 1.0
    output: float = 1.0


@dataclass(frozen=True)
class Rule:
    """A parameter's row.

    Attributes:
        ratio: its fan-in over the base's.
        std: of its initial values; None: it starts at one.
        lr, weight_decay, eps: multipliers of the optimizer's own.
    """

    role: Role
    shape: tuple[int, ...]
    ratio: float
    std: float | None
    lr: float
    weight_decay: float
    eps: float


@dataclass(frozen=True)
class MupTable:
    """Every parameter's rule by its name, and the multipliers of the forward pass."""

    rules: Mapping[str, Rule]
    multipliers: Multipliers

    def rows(self) -> list[dict[str, Any]]:
        """The rules as plain rows, in the order of the parameters."""
        return [{"name": name, **vars(rule), "role": str(rule.role)} for name, rule in self.rules.items()]


def forward_multipliers(shape: DecoderShape, base: DecoderShape | None, chosen: Parametrization) -> Multipliers:
    """The multipliers of the forward pass; `base` is None under the standard parametrization."""
    base = base or shape
    alpha = chosen.depth_alpha
    return Multipliers(
        attention=shape.head_dim**-0.5 * math.sqrt(base.head_dim / shape.head_dim),
        embedding=chosen.embedding_multiplier,
        residual=1.0 if alpha is None else (shape.num_layers / base.num_layers) ** -alpha,
        output=chosen.output_multiplier / (shape.hidden_size / base.hidden_size),
    )


def mup_table(decoder: Decoder, base: Decoder | None, chosen: Parametrization, *, init_std: float) -> MupTable:
    """The table of a decoder.

    Args:
        decoder: may be on the meta device.
        base: of the base's widths and the decoder's depth; None under the standard parametrization.
        init_std: σ.
    """
    compared = dict((base or decoder).named_parameters())
    roles = roles_by_name(decoder)
    rules = {}
    for name, parameter in decoder.named_parameters():
        # A vector has no fan-in, and neither has a table of rows that are looked up.
        has_fan_in = roles[name] in _MATRICES
        ratio = parameter.shape[1] / compared[name].shape[1] if has_fan_in else 1.0
        rules[name] = _rule(
            roles[name], ratio, shape=tuple(parameter.shape), decoder=decoder.shape, chosen=chosen, init_std=init_std,
            width=decoder.shape.hidden_size / (base or decoder).shape.hidden_size,
        )  # fmt: skip
    return MupTable(rules, decoder.multipliers)


def roles_by_name(decoder: Decoder) -> dict[str, Role]:
    """The role of every parameter.

    Raises:
        ConfigError: a parameter has no role, or more than one.
    """
    found: defaultdict[int, list[Role]] = defaultdict(list)
    for module, role in decoder.roles():
        for parameter in module.parameters(recurse=False):
            found[id(parameter)].append(role)
    roles = {}
    for name, parameter in decoder.named_parameters(remove_duplicate=False):
        given = found[id(parameter)]
        if len(given) != 1 or name in roles:
            raise ConfigError(
                f"{name} has {len(given)} roles in the table of μP" + (f": {', '.join(given)}." if given else "."),
                why="its initialisation, learning rate and weight decay would be left to chance.",
                fix="name the module that holds it once in `roles()` of the decoder or its block.",
            )
        roles[name] = given[0]
    if len({id(parameter) for parameter in decoder.parameters()}) != len(roles):
        raise ConfigError("a parameter has two names in the decoder.", fix="tie weights by using one module twice.")
    return roles


def _rule(
    role: Role,
    ratio: float,
    *,
    shape: tuple[int, ...],
    decoder: DecoderShape,
    chosen: Parametrization,
    init_std: float,
    width: float,
) -> Rule:
    alpha = chosen.depth_alpha
    base_layers = decoder.num_layers if alpha is None or chosen.base is None else chosen.base.num_layers
    assert base_layers is not None, "the schema asks for base.num_layers beside depth_alpha"
    depth = decoder.num_layers / base_layers
    std: float | None = init_std / math.sqrt(ratio)
    if role in _NORMS:
        std = None
    elif role is Role.RESIDUAL:
        std = init_std / math.sqrt(ratio) / math.sqrt(2 * base_layers)
    elif role is Role.HEAD and chosen.zero_head:
        std = 0.0
    inside = role in _IN_BLOCKS and alpha is not None
    decay = {"independent": ratio, "coupled": 1.0, "sqrt": math.sqrt(ratio)}[chosen.weight_decay]
    return Rule(
        role=role,
        shape=shape,
        ratio=ratio,
        std=std,
        lr=(1 / ratio) * (depth ** (alpha - 1) if inside and alpha is not None else 1.0),
        weight_decay=0.0 if role in _NORMS else decay,
        eps=(1 / width if chosen.scale_eps else 1.0)
        * (depth**-alpha if inside and alpha is not None and chosen.scale_eps else 1.0),
    )


def clean_name(name: str) -> str:
    """A parameter's name without what torch's wrappers put into it."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def named_by_rule(module: nn.Module, table: MupTable) -> Iterator[tuple[str, nn.Parameter, Rule]]:
    """Every parameter with its clean name and its rule, wherever it is sharded, compiled or wrapped.

    Raises:
        ConfigError: a parameter has no rule, or a rule no parameter.
    """
    parameters = {clean_name(name): parameter for name, parameter in module.named_parameters()}
    strange, absent = parameters.keys() - table.rules.keys(), table.rules.keys() - parameters.keys()
    if strange or absent:
        raise ConfigError(
            f"{min(strange or absent)} is {'not in the table of μP' if strange else 'in no parameter of the model'}.",
            why="every parameter has one learning rate, weight decay and start.",
            fix="make the table of the same config and vocabulary as the model.",
        )
    for name, parameter in parameters.items():
        yield name, parameter, table.rules[name]


def parameter_groups(
    decoder: nn.Module, table: MupTable, *, lr: float, weight_decay: float, eps: float
) -> list[dict[str, Any]]:
    """Groups for torch.optim.AdamW, one for each triple of learning rate, weight decay and eps.

    Args:
        decoder: sharded, compiled or wrapped as it may be.
        lr, weight_decay, eps: at the base's size. torch decays by lr × weight_decay.

    Returns:
        Groups with params, lr, initial_lr, weight_decay, eps. Every parameter is in one. They hold no names: torch
        saves optimizers by parameter, and a list of texts can't be flattened.
    """
    groups: dict[tuple[float, float, float], dict[str, Any]] = {}
    for _, parameter, rule in named_by_rule(decoder, table):
        values = (lr * rule.lr, weight_decay * rule.weight_decay, eps * rule.eps)
        keys = dict(zip(("lr", "weight_decay", "eps"), values, strict=True))
        group = groups.setdefault(values, {"params": [], **keys, "initial_lr": values[0]})
        group["params"].append(parameter)
    return list(groups.values())
