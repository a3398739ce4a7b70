"""The coordinate check: whether activations stay where they are when a decoder becomes wider, or deeper.

Decoders of several sizes take a few optimizer steps on one short row. Under a right parametrization the mean absolute
value of what attention, feed-forward network and residual stream hold doesn't depend on the size, at the start and
after every step; what does grow or shrink does so as a power of the size, a line on logarithmic axes.

Few tokens on purpose: over many random ones the updates of different tokens cancel, which blurs the lines.

Source: Yang et al. 2022, "Tensor Programs V" (arXiv 2203.03466), appendix D.1.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from supertrainer.models.decoder_schema import DecoderModelConfig
from supertrainer.models.mup import parameter_groups
from supertrainer.models.pretrain import DecoderModel

Axis = Literal["width", "depth"]
PLACES = ("attention", "ffn", "residual", "logits")
HEAD_DIM = 32
HEADS_PER_KV_HEAD = 2
VOCABULARY = 256
# Slopes that hold, of the logarithm of a place's mean absolute value over that of the size. After the first step a
# place may shrink a little: what the steps add is the same, what was there at the start averages out. The logits of a
# head that starts at random shrink with the root of the width at first, so that only their growth is a fault.
AT_START = (-0.10, 0.10)
AFTER_STEPS = (-0.30, 0.20)
LOGITS = (-math.inf, 0.10)


@dataclass(frozen=True)
class CoordinateCheck:
    """What is trained.

    Attributes:
        axis: what grows.
        sizes: widths, or numbers of blocks.
        steps: optimizer steps; coordinates are taken before the first and after each.
        learning_rate, weight_decay, eps: of AdamW at the smallest size.
        other: the size that doesn't grow: blocks of all widths, or the width of all depths.
    """

    axis: Axis = "width"
    sizes: Sequence[int] = (64, 128, 256, 512)
    other: int = 2
    seeds: int = 6
    steps: int = 4
    tokens: int = 8
    learning_rate: float = 2.0**-8
    weight_decay: float = 0.1
    eps: float = 1e-8

    def model(self, size: int, *, parametrization: str) -> DecoderModel:
        """The decoder of a size; the smallest one is the base."""
        first = min(self.sizes)
        width, layers = (size, self.other) if self.axis == "width" else (self.other, size)
        base = {"hidden_size": first, "num_layers": layers} if self.axis == "width" else {"hidden_size": width}
        chosen: dict[str, object] = {"name": parametrization}
        if parametrization == "mup":
            chosen["base"] = base
            if self.axis == "depth":
                chosen |= {"base": {**base, "num_layers": first}, "depth_alpha": 1.0}
        keys = {
            "_target_": f"{DecoderModel.__module__}.{DecoderModel.__name__}",
            "num_layers": layers,
            "hidden_size": width,
            "num_heads": width // HEAD_DIM,
            "num_kv_heads": width // HEAD_DIM // HEADS_PER_KV_HEAD,
            "max_length": max(self.tokens, 2),
            "parametrization": chosen,
        }
        return DecoderModel(DecoderModelConfig.model_validate(keys))


@dataclass(frozen=True)
class Coordinate:
    """The mean absolute value at a place of one decoder, after so many steps.

    Attributes:
        block: the place's block, counted from zero; None for logits.
    """

    parametrization: str
    size: int
    seed: int
    step: int
    place: str
    block: int | None
    value: float


def measure(check: CoordinateCheck, *, parametrization: str) -> Iterator[Coordinate]:
    """The coordinates of every size, seed, step and place. All sizes of a seed see the same tokens."""
    for size in check.sizes:
        for seed in range(check.seeds):
            for step, places in enumerate(_train(check, size, parametrization=parametrization, seed=seed)):
                for (place, block), value in places.items():
                    yield Coordinate(parametrization, size, seed, step, place, block, value)


def _train(
    check: CoordinateCheck, size: int, *, parametrization: str, seed: int
) -> Iterator[Mapping[tuple[str, int | None], float]]:
    model = check.model(size, parametrization=parametrization)
    decoder = model.build(VOCABULARY)
    model.initialize(decoder, seed=seed, vocab_size=VOCABULARY)
    groups = parameter_groups(
        decoder, model.table(VOCABULARY), lr=check.learning_rate, weight_decay=check.weight_decay, eps=check.eps
    )
    optimizer = torch.optim.AdamW(groups)
    generator = torch.Generator().manual_seed(seed)
    row = torch.randint(0, VOCABULARY, (1, check.tokens + 1), generator=generator)
    tokens, targets = row[:, :-1], row[:, 1:]
    yield _coordinates(decoder, tokens)
    for _ in range(check.steps):
        (decoder(tokens, targets=targets).nll / check.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield _coordinates(decoder, tokens)


@torch.no_grad()
def _coordinates(decoder: nn.Module, tokens: Tensor) -> dict[tuple[str, int | None], float]:
    """Place and block -> mean absolute value."""
    found: dict[tuple[str, int | None], float] = {}

    def watch(module: nn.Module, place: str, block: int) -> torch.utils.hooks.RemovableHandle:
        def take(module: nn.Module, inputs: object, output: Tensor) -> None:
            found[place, block] = output.abs().mean().item()

        return module.register_forward_hook(take)

    hooks = []
    for number, block in enumerate(decoder.get_submodule("blocks").children()):
        parts = {"attention": block.get_submodule("attention"), "ffn": block.get_submodule("ffn"), "residual": block}
        hooks += [watch(module, place, number) for place, module in parts.items()]
    found["logits", None] = decoder(tokens).abs().mean().item()
    for hook in hooks:
        hook.remove()
    return found


def slopes(coordinates: Iterable[Coordinate]) -> dict[tuple[str, int], float]:
    """(place, step) -> the slope of the base-2 logarithm of the mean over seeds and blocks, over that of the size.

    Raises:
        ValueError: there are fewer than two sizes.
    """
    lines: defaultdict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in coordinates:
        lines[one.place, one.step][one.size].append(one.value)
    return {
        key: slope([(size, statistics.fmean(values)) for size, values in sorted(sizes.items())])
        for key, sizes in lines.items()
    }


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law nearest to (size, value) points: least squares on logarithms."""
    sizes = [math.log2(size) for size, _ in points]
    # What isn't finite, or zero, lies on no line: nan says so, and is within no bound.
    if any(not math.isfinite(value) or value <= 0 for _, value in points):
        return math.nan
    return statistics.linear_regression(sizes, [math.log2(value) for _, value in points]).slope


def bounds(place: str, step: int) -> tuple[float, float]:
    """The slopes that hold for a place after so many steps."""
    if place == "logits":
        return LOGITS
    return AFTER_STEPS if step else AT_START


def breaches(found: Mapping[tuple[str, int], float]) -> list[str]:
    """The slopes that are out of their bounds, in words; none where the parametrization is right."""
    told = []
    for (place, step), value in found.items():
        low, high = bounds(place, step)
        if not low <= value <= high:
            allowed = f"at most {high:+.2f}" if low == -math.inf else f"from {low:+.2f} to {high:+.2f}"
            told.append(f"{place} after step {step}: slope {value:+.2f}, right is {allowed}")
    return told
