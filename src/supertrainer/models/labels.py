"""Class names against a checkpoint's head: the same names keep their weights, in order; others get a new head."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.models.schema import ModelConfig

log = logging.getLogger(__name__)


def label_names_of(config: PreTrainedConfig) -> tuple[str, ...]:
    """A config's class names in the order of their ids."""
    names: Mapping[int, str] = config.id2label or {}
    return tuple(names[index] for index in sorted(names))


def label_dimensions(skeleton: PreTrainedModel, wider: PreTrainedModel) -> dict[str, int]:
    """The parameters that have one row per class, with the dimension of the classes.

    Args:
        skeleton: the model with C classes, on the meta device.
        wider: the same with C + 1 classes.

    Returns:
        Parameter name to the dimension whose size changed.
    """
    sizes = {name: parameter.shape for name, parameter in wider.named_parameters()}
    return {
        name: next(
            dim for dim, (one, other) in enumerate(zip(parameter.shape, sizes[name], strict=True)) if one != other
        )
        for name, parameter in skeleton.named_parameters()
        if parameter.shape != sizes[name]
    }


def align_head(
    model: PreTrainedModel,
    *,
    held: Sequence[str],
    wanted: Sequence[str],
    dimensions: Mapping[str, int],
    fresh: Mapping[str, torch.Tensor],
) -> bool:
    """Makes the loaded head speak the wanted classes.

    Args:
        model: with the checkpoint's head loaded, as many classes as wanted.
        held: the checkpoint's class names in the order of its rows.
        wanted: the class names in the order of the ids that the data uses.
        dimensions: the parameters that have a row per class (`label_dimensions`).
        fresh: initial values for them, for when the names differ.

    Returns:
        Whether the checkpoint's rows were kept.
    """
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        if set(held) == set(wanted) and len(held) == len(wanted):
            order = torch.tensor([list(held).index(name) for name in wanted])
            for name, dim in dimensions.items():
                parameters[name].copy_(parameters[name].index_select(dim, order.to(parameters[name].device)))
            if tuple(held) != tuple(wanted):
                log.info(
                    "the checkpoint's head has the same classes in another order; its rows follow the data's order"
                )
            return True
        for name in dimensions:
            parameters[name].copy_(fresh[name])
    log.warning("the checkpoint's head knows %s; the data has %s: a new head is trained", _shown(held), _shown(wanted))
    return False


def _shown(names: Sequence[str]) -> str:
    return f"{len(names)} classes ({', '.join(names[:5])}{', …' if len(names) > 5 else ''})"


def require_labels(given: ModelConfig, label_names: Sequence[str]) -> None:
    """Refuses classes in the architecture's config that aren't those of the data, which decide where it has some.

    Raises:
        ConfigError: with both.
    """
    given_names = {
        "model.config.id2label": (given.config or {}).get("id2label"),
        "model.config_overrides.id2label": given.config_overrides.get("id2label"),
    }
    problems = [
        Problem(
            f"{where}: {_shown(list(map(str, names.values())))}, and the data has {_shown(label_names)}.",
            why="a head has a row for every label of the data, in the order of their ids.",
            fix="leave it out; dataset.labels says which labels there are, and their order.",
        )
        for where, names in given_names.items()
        if label_names and names is not None and [str(name) for name in names.values()] != list(label_names)
    ]
    raise_all(ConfigError, problems)


def owners(parameter_names: Iterable[str]) -> list[str]:
    """The modules that hold these parameters, each once, in order."""
    return list(dict.fromkeys(name.rpartition(".")[0] for name in parameter_names))


def head_modules(model: PreTrainedModel) -> list[str]:
    """The top-level modules outside the pretrained body that have parameters: they are new for every task."""
    return [
        name for name, module in model.named_children() if name != model.base_model_prefix and _has_parameters(module)
    ]


def module_name(model: nn.Module, wanted: nn.Module) -> str:
    """The full name of a module of a model."""
    return next(name for name, module in model.named_modules() if module is wanted)


def without_output(model: PreTrainedModel, modules: Sequence[str]) -> list[str]:
    """Those of the modules that don't hold the output embedding, which may be one tensor with the input embedding."""
    output = model.get_output_embeddings()
    found = [name for name, module in model.named_modules() if module is output]
    return [name for name in modules if not any(place == name or place.startswith(f"{name}.") for place in found)]


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None
