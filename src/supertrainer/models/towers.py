"""The towers of a vision-language model: which of its parameters see, which translate, which read and write.

They are found by the names that transformers gives to their modules, whatever the architecture.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from supertrainer.core.errors import ConfigError
from supertrainer.models.mllm_schema import TOWERS, Tower

TowerPatterns = Mapping[str, Sequence[str]]
"""Regular expressions over the full names of parameters, by tower: `model.tower_modules`."""

_NAMES: Mapping[Tower, frozenset[str]] = {
    "vision": frozenset(
        {
            "vision_tower", "visual", "vision_model", "vision_encoder", "image_tower", "vision_backbone", "vqmodel",
            "vision", "vision_embed_tokens", "high_res_vision_model", "low_res_vision_model", "image_encoder",
        }
    ),
    "projector": frozenset(
        {
            "multi_modal_projector", "connector", "merger", "qformer", "query_tokens", "language_projection",
            "mm_projector", "modality_projection", "aligner", "abstractor", "perceiver", "resampler", "image_newline",
            "view_seperator", "view_separator", "projector", "vision_projector", "visual_projection", "embed_vision",
            "image_projection", "image_proj_norm", "image_pos_embed", "visual_temporal_embed",
        }
    ),
    "language": frozenset(
        {
            "language_model", "text_model", "text_decoder", "text", "lm_head", "embed_tokens", "layers", "norm",
            "decoder", "embed_out",
        }
    ),
}  # fmt: skip
_INSIDE_VISION = frozenset({"merger", "deepstack_merger_list", "img_projection", "glb_GN", "sub_GN", "proj_mlp"})
_WRAPPERS = ("base_model.model.",)
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)  # nothing calls them, so nothing can stand in their place


def tower_of(name: str) -> Tower | None:
    """The tower that a module or parameter belongs to, by its full name; None where the name doesn't tell."""
    found: Tower | None = None
    for part in name.split("."):
        if found is None:
            found = next((tower for tower in TOWERS if part in _NAMES[tower]), None)
        elif found == "vision" and part in _INSIDE_VISION:
            return "projector"
    return found


def sees(model: nn.Module) -> bool:
    """Whether a model has a tower for pictures."""
    return any(tower_of(name) == "vision" for name, _ in model.named_modules())


class Towers:
    """Which parameters of a model belong to which tower; each to exactly one."""

    def __init__(self, model: nn.Module, *, patterns: TowerPatterns | None = None) -> None:
        """
        Args:
            model: without an adapter around it; it may be on the meta device.
            patterns: decide where they match; names decide elsewhere.

        Raises:
            ConfigError: a parameter that belongs to none, a tower without any, a pattern that matches nothing.
        """
        self._patterns = patterns or {}
        self._model = model
        named = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        found = {name: self.of(name) for name in named}
        lost = [name for name, tower in found.items() if tower is None]
        empty = [tower for tower in ("vision", "language") if tower not in found.values()]
        if lost or empty:
            raise _unknown(model, lost=lost, empty=empty)
        idle = [
            (tower, pattern)
            for tower, patterns_of in self._patterns.items()
            for pattern in patterns_of
            if not any(re.match(pattern, name) for name in named)
        ]
        if idle:
            raise ConfigError(
                f"model.tower_modules.{idle[0][0]}: {idle[0][1]!r} matches no parameter.",
                why="patterns are regular expressions that full names begin with.",
                fix=f"such as {named[0]!r}.",
            )

    def of(self, name: str) -> Tower | None:
        """The tower of a module or parameter, by its full name."""
        for tower in TOWERS:
            if any(re.match(pattern, name) for pattern in self._patterns.get(tower, ())):
                return tower
        return tower_of(name)

    def modules(self, tower: Tower) -> tuple[list[str], list[str]]:
        """What covers a tower: its outermost modules that can be called, and the parameters that no such module holds.

        Returns:
            Full names of both.
        """
        modules: list[str] = []
        single: list[str] = []

        def walk(module: nn.Module, name: str) -> None:
            held = [self.of(inner) for inner in _parameters_of(module, name)]
            if tower not in held:
                return
            if name and set(held) == {tower} and not isinstance(module, _CONTAINERS):
                modules.append(name)
                return
            single.extend(inner for inner in _parameters_of(module, name, recurse=False) if self.of(inner) == tower)
            for child, inner in module.named_children():
                walk(inner, f"{name}.{child}" if name else child)

        walk(self._model, "")
        return modules, single

    def counts(self) -> Counter[Tower]:
        """Parameters of each tower."""
        counted: Counter[Tower] = Counter()
        for name, parameter in self._model.named_parameters():
            found = self.of(name)
            assert found is not None, "checked at the start"
            counted[found] += parameter.numel()
        return counted


def plain_name(name: str) -> str:
    """A name without what PEFT puts before it."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def _parameters_of(module: nn.Module, name: str, *, recurse: bool = True) -> Iterable[str]:
    prefix = f"{name}." if name else ""
    named = module.named_parameters(recurse=recurse, remove_duplicate=False)
    return (f"{prefix}{inner}" for inner, _ in named)


def _unknown(model: Any, *, lost: Sequence[str], empty: Sequence[str]) -> ConfigError:
    top = [name for name, _ in model.named_children()]
    body = dict(model.named_children()).get(model.base_model_prefix)
    inner = [] if body is None else [f"{model.base_model_prefix}.{name}" for name, _ in body.named_children()]
    what = (
        f"the towers of a {model.config.model_type} model aren't known: "
        + (f"{lost[0]} and {len(lost) - 1} further parameters belong to none." if lost else "")
        + (f"nothing is found for {' and '.join(empty)}." if not lost else "")
    )
    return ConfigError(
        what,
        why=f"its modules are {', '.join([*top, *inner][:16])}.",
        fix="name them: model.tower_modules={vision: ['model\\.NAME'], projector: […], language: […]}.",
    )
