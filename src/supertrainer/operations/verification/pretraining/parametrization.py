"""The table of μP: every parameter in it once, in a group with its values; steps that keep their size over width."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from supertrainer.config.spine import Config
from supertrainer.core.errors import ConfigError
from supertrainer.models.decoder_schema import DecoderModelConfig, DecoderShape
from supertrainer.models.mup import named_by_rule, roles_by_name
from supertrainer.operations.verification.pretraining.reduction import at_constant_rate, with_model, with_trainer
from supertrainer.operations.verification.pretraining.workbench import PretrainWorkbench, Step
from supertrainer.operations.verification.rows import Row, broken, none_of, not_applicable, same_bits, within
from supertrainer.operations.verification.workbench import Weights, differing

RATE = 0.01  # float32 can tell it beside weights of one
STD_ERRORS = 5.0  # that two samples of one distribution are apart at most: one in a hundred thousand tables has more
STEP_BOUND = 0.01
_EPS = 1e-12  # far below every gradient: then the first update is the rate itself


def check_parametrization(bench: PretrainWorkbench) -> Iterator[Row]:
    """Looks at the table, at the optimizer's groups, at the standard parametrization, and over width at first updates,
    initial values and weight decay.
    """
    decoder = bench.model().build(bench.vocab_size, device="meta")
    names = [name for name, _ in decoder.named_parameters()]
    try:
        roles = roles_by_name(decoder)
    except ConfigError as error:
        yield broken("μP: parameters without one role", str(error.problems[0].what))
        return
    table = bench.model().table(bench.vocab_size)
    without = sum(name not in roles or name not in table.rules for name in names) + len(table.rules.keys() - set(names))
    yield none_of("μP: parameters without one role and one rule", without, len(names))
    yield from _groups(bench)
    yield from _base_itself(bench)
    if bench.config.model.parametrization.base is None:
        yield not_applicable("μP: over width", "the standard parametrization has no base")
        return
    yield from _over_width(bench)


def _groups(bench: PretrainWorkbench) -> Iterator[Row]:
    """Whether every parameter is in one group, with the values of its own rule."""
    built, trainer = bench.built(), bench.config.trainer
    groups: dict[int, list[dict[str, float]]] = {}
    for group in built.optimizer.param_groups:
        for parameter in group["params"]:
            groups.setdefault(id(parameter), []).append(group)
    often = wrong = total = 0
    for _, parameter, rule in named_by_rule(built.decoder, bench.model().table(bench.vocab_size)):
        found = groups.get(id(parameter), [])
        often, total = often + (len(found) != 1), total + 1
        expected = (trainer.learning_rate * rule.lr, trainer.weight_decay * rule.weight_decay, trainer.eps * rule.eps)
        wrong += any((g["initial_lr"], g["weight_decay"], g["eps"]) != expected for g in found) or not found
    yield none_of("μP: parameters that aren't in one group of the optimizer", often, total)
    yield none_of("μP: parameters whose group has another rate, decay or eps than their rule", wrong, total)


def _base_itself(bench: PretrainWorkbench) -> Iterator[Row]:
    """At the size of its base it is the standard parametrization, to the bit: at the start, and after updates."""
    model = bench.config.model
    own = model.parametrization.model_dump()
    shape = model.shape(vocab_size=1)
    base = {**_sizes(shape), "num_layers": shape.num_layers}
    depth = own["depth_alpha"]
    as_base = with_model(bench.config, parametrization=own | {"name": "mup", "base": base, "depth_alpha": depth})
    standard = with_model(bench.config, parametrization=own | {"name": "sp", "base": None, "depth_alpha": None})
    one, other = (bench.step(config, count=2) for config in (as_base, standard))
    yield same_bits("μP: at its base's size = the standard one: initial weights", *differing(one.start, other.start))
    yield same_bits("μP: the same: weights after two updates", *differing(one.weights, other.weights))


def _over_width(bench: PretrainWorkbench) -> Iterator[Row]:
    """Compares with a decoder of the base's width and the same depth: matrices inside the blocks times their fan-in.

    That is what the update adds to an activation, whose parts are of the same size at every width.
    """
    model = bench.config.model
    wide = at_constant_rate(
        bench.drawn,
        learning_rate=RATE,
        weight_decay=0.0,
        eps=_EPS,
        max_grad_norm=None,
        z_loss=0.0,
    )
    narrow = _at_base_width(wide)
    steps = [bench.step(config) for config in (wide, narrow)]
    sizes = f"width {wide.model.hidden_size} to {narrow.model.hidden_size}"
    yield within(
        f"μP: {sizes}: first update × fan-in",
        _furthest(*(_by_fan_in(_figures(_changes(step), _largest), step.start, power=1.0) for step in steps)),
        bound=STEP_BOUND,
    )
    yield within(f"μP: {sizes}: initial std × √fan-in, in standard errors", _errors_apart(*steps), bound=STD_ERRORS)
    power = {"independent": 0.0, "sqrt": 0.5, "coupled": 1.0}[model.parametrization.weight_decay]
    decayed = [
        _decayed(bench.step(with_trainer(config, weight_decay=1.0)), step)
        for config, step in zip((wide, narrow), steps, strict=True)
    ]
    yield within(
        f"μP: {sizes}: what decays of the weights" + (f" × fan-in^{power:g}" if power else ""),
        _furthest(*(_by_fan_in(of, step.start, power=power) for of, step in zip(decayed, steps, strict=True))),
        bound=STEP_BOUND,
    )
    norms = [share for name, share in decayed[0].items() if "norm" in name]
    yield none_of("μP: norms that decay", sum(map(bool, norms)), len(norms))


def _at_base_width(config: Config) -> Config:
    """The config with a decoder of its base's width, as deep as its own."""
    model: DecoderModelConfig = config.model
    base = model.base_shape(vocab_size=1)
    assert base is not None, "it has one"
    return with_model(config, **_sizes(base), source=None)


def _sizes(shape: DecoderShape) -> dict[str, int]:
    names = ("hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_size")
    return {name: vars(shape)[name] for name in names}


def _changes(step: Step) -> Weights:
    return {name: step.weights[name] - start for name, start in step.start.items()}


def _decayed(with_decay: Step, without: Step) -> dict[str, float]:
    """What share of each weight the decay of a step took, by the rate of the base."""
    shares = {}
    for name, start in without.start.items():
        taken = (without.weights[name] - with_decay.weights[name]).double()
        shares[name] = float((taken * start).sum() / start.double().square().sum()) / RATE
    return shares


def _figures(weights: Weights, figure: Callable[[Tensor], float]) -> dict[str, float]:
    return {name: figure(tensor) for name, tensor in weights.items()}


def _by_fan_in(figures: dict[str, float], weights: Weights, *, power: float) -> dict[str, float]:
    """Figures of weights; of matrices inside the blocks, whose fan-in grows with width, times a power of it."""
    grows = {name for name, tensor in weights.items() if name.startswith("blocks.") and tensor.ndim == 2}
    return {
        name: figure * (weights[name].shape[1] ** power if name in grows else 1.0) for name, figure in figures.items()
    }


def _errors_apart(one: Step, other: Step) -> float:
    """The largest difference of two matrices' initial std × √fan-in, in standard errors of it."""
    sides = [_by_fan_in(_figures(step.start, _std), step.start, power=0.5) for step in (one, other)]
    return max(
        abs(math.log(sides[0][name] / std)) / math.sqrt(0.5 / start.numel() + 0.5 / one.start[name].numel())
        for (name, std), start in zip(sides[1].items(), other.start.values(), strict=True)
        if start.ndim == 2
    )


def _furthest(one: dict[str, float], other: dict[str, float]) -> float:
    """The largest difference of two figures, as a share of the second; of those that are 0 in both there is none."""
    pairs = [(one[name], value) for name, value in other.items() if value or one[name]]
    return max((abs(a - b) / abs(b) if b else float("inf") for a, b in pairs), default=float("nan"))


def _largest(tensor: Tensor) -> float:
    return float(tensor.abs().max())


def _std(tensor: Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())
