"""LoRA and its kin on any model: what each pattern matches, what is trained whole, and the table of both."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from supertrainer.config.nearest import did_you_mean
from supertrainer.config.strict import thaw
from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.models.initial import Start, keep_start, start_of
from supertrainer.models.loading import quiet_transformers
from supertrainer.models.methods import INIT, begins_in_base
from supertrainer.models.towers import plain_name, sees, tower_of

log = logging.getLogger(__name__)

ALL_LINEAR = ("auto", "all-linear")
LINEAR = (nn.Linear, Conv1D)
ADAPTABLE = (*LINEAR, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class AdapterRow:
    """One line of the table of adapted modules.

    Attributes:
        tower: the top-level module that they are in; of a model with pictures, vision, projector or language.
        name: the last part of their names.
        count: how many there are.
        parameters: trained parameters in them.
    """

    tower: str
    name: str
    count: int
    parameters: int


def add_adapter(
    model: PreTrainedModel,
    peft_kwargs: Mapping[str, Any],
    *,
    trained_whole: Sequence[str],
    task_type: str | None,
    base: tuple[str, str | None] | None,
    seed: int,
) -> nn.Module:
    """Freezes the model and adds a LoRA adapter; the head and every newly initialised module stay trained as they are.

    Args:
        model: with its weights, or on the meta device.
        peft_kwargs: keys of `peft.LoraConfig`.
        trained_whole: modules that are trained and saved beside the adapter, by full name.
        task_type: `peft.TaskType` of the head; it decides which class reads the adapter back.
        base: where plain PEFT finds the frozen weights: a Hub id or a directory, and a commit. None: nowhere but in the
            saved model.
        seed: of the adapter's initial values.

    Returns:
        A `peft.PeftModel`.

    Raises:
        ConfigError: a pattern that matches nothing, each with the nearest module name, or options that PEFT refuses.
    """
    from peft import LoraConfig, get_peft_model

    options = thaw(peft_kwargs)
    saved = [*trained_whole, *(options.pop("modules_to_save", None) or ())]
    if options.get("target_modules") is not None:
        options["target_modules"] = _targets(model, options["target_modules"], saved=saved)
    if model.device.type == "meta" and begins_in_base(options):
        options[INIT] = True  # there is nothing to decompose
    problems = [*_pattern_problems(model, options, saved=saved), *_tied_problems(model, options)]
    raise_all(ConfigError, [*problems, *_saved_problems(model, saved)])
    try:
        with quiet_transformers(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            config = LoraConfig(task_type=task_type, modules_to_save=list(dict.fromkeys(saved)), **options)
            adapted = get_peft_model(model, config)
            if begins_in_base(options):
                keep_start(adapted)
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(
            "trainer.peft_kwargs can't be applied to this model.",
            why=str(error).splitlines()[0],
            fix="see the parameters of peft.LoraConfig.",
        ) from error
    applied = adapted.peft_config["default"]
    applied.base_model_name_or_path, applied.revision = base or (None, None)
    applied.init_lora_weights = True  # a reader would begin anew, and take a part out of the weights again
    applied.modules_to_save = list(dict.fromkeys(saved))  # PEFT has added its own names for heads, some again
    for row in adapter_table(adapted):
        log.info("adapter: %s %s × %d, %d parameters", row.tower, row.name, row.count, row.parameters)
    return adapted


def without_start(
    model: PreTrainedModel,
    peft_kwargs: Mapping[str, Any],
    *,
    trained_whole: Sequence[str],
    task_type: str | None,
    seed: int,
) -> tuple[PreTrainedModel, Start]:
    """The weights without the part that an adapter begins with (PiSSA, OLoRA), and that part."""
    adapted: Any = add_adapter(
        model, peft_kwargs, trained_whole=trained_whole, task_type=task_type, base=None, seed=seed
    )
    start = start_of(adapted)
    assert start is not None, "it is asked for where there is one"
    return adapted.unload(), start


def adapter_table(model: nn.Module) -> list[AdapterRow]:
    """What an adapter sits on and what is trained whole, by tower and last part of the name."""
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils.other import ModulesToSaveWrapper, TrainableTokensWrapper

    counts: Counter[tuple[str, str]] = Counter()
    parameters: Counter[tuple[str, str]] = Counter()
    has_towers = sees(model)
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer | ModulesToSaveWrapper | TrainableTokensWrapper):
            parts = plain_name(name).split(".")
            if parts[-1] == "token_adapter":
                continue  # inside of the wrapper, which is counted
            how = " (whole)" if isinstance(module, ModulesToSaveWrapper) else ""
            tower = (tower_of(plain_name(name)) if has_towers else None) or parts[0]
            key = (tower, parts[-1] + (" (new rows)" if isinstance(module, TrainableTokensWrapper) else how))
            counts[key] += 1
            parameters[key] += sum(p.numel() for p in module.parameters() if p.requires_grad)
    return [AdapterRow(*key, count, parameters[key]) for key, count in counts.items()]


def _targets(model: PreTrainedModel, patterns: str | list[str], *, saved: Sequence[str]) -> str | list[str]:
    """`auto` and `all-linear` spelled out: every linear layer of the body, by the last part of its name.

    The output of a language model is left out: it may be one with the embeddings, and couldn't be folded into them.
    """
    if patterns not in ALL_LINEAR:
        return patterns
    output = model.get_output_embeddings()
    inside = [
        name
        for name, module in model.named_modules()
        if isinstance(module, LINEAR) and module is not output and not _within(name, saved)
    ]
    return sorted({name.rpartition(".")[2] for name in inside})


def _tied_output(model: PreTrainedModel) -> nn.Module | None:
    """The output embedding, where it is one tensor with the input one: an adapter folded into it changes both."""
    output = model.get_output_embeddings()
    return output if output is not None and output.weight is model.get_input_embeddings().weight else None


def _tied_problems(model: PreTrainedModel, options: Mapping[str, Any]) -> list[Problem]:
    tied, targets = _tied_output(model), options.get("target_modules")
    patterns = [targets] if isinstance(targets, str) else list(targets or ())
    names = [name for name, module in model.named_modules() if module is tied]
    return [
        Problem(
            f"trainer.peft_kwargs.target_modules: {pattern!r} matches {name}.",
            why="its weights are those of the input embedding too, so an adapter on it can't be merged.",
            fix=f"leave {pattern!r} out; auto does.",
        )
        for name in names
        for pattern in patterns
        if matches(pattern, name, regex=isinstance(targets, str))
    ]


def _pattern_problems(model: nn.Module, options: Mapping[str, Any], *, saved: Sequence[str]) -> list[Problem]:
    adaptable = [name for name, module in model.named_modules() if isinstance(module, ADAPTABLE)]
    body = [name for name in adaptable if not _within(name, saved)]
    targets = options.get("target_modules")
    patterns = [targets] if isinstance(targets, str) else list(targets or ())
    problems = []
    for pattern in patterns:
        if any(matches(pattern, name, regex=isinstance(targets, str)) for name in body):
            continue
        in_head = [name for name in adaptable if matches(pattern, name, regex=isinstance(targets, str))]
        problems.append(
            Problem(
                f"trainer.peft_kwargs.target_modules: {pattern!r} matches nothing that an adapter could sit on.",
                why=f"{in_head[0]} is trained whole, as every new or head module is."
                if in_head
                else f"the model has {len(body)} such modules.",
                fix=f"leave {pattern!r} out." if in_head else did_you_mean(pattern, _short_names(body)),
            )
        )
    excluded = options.get("exclude_modules")
    problems += [
        Problem(
            f"trainer.peft_kwargs.exclude_modules: {pattern!r} matches nothing that an adapter could sit on.",
            fix=did_you_mean(pattern, _short_names(body)),
        )
        for pattern in ([excluded] if isinstance(excluded, str) else excluded or ())
        if not any(matches(pattern, name, regex=isinstance(excluded, str)) for name in body)
    ]
    chosen = (
        [n for n in body if any(matches(p, n, regex=isinstance(targets, str)) for p in patterns)] if patterns else body
    )
    for option in ("rank_pattern", "alpha_pattern"):
        problems += [
            Problem(
                f"trainer.peft_kwargs.{option}: {pattern!r} matches none of the {len(chosen)} adapted modules.",
                fix=did_you_mean(pattern, _short_names(chosen)),
            )
            for pattern in options.get(option) or {}
            if not any(re.match(rf"(.*\.)?({pattern})$", name) for name in chosen)
        ]
    return problems


def _saved_problems(model: nn.Module, saved: Sequence[str]) -> list[Problem]:
    names = [name for name, module in model.named_modules() if name and next(module.parameters(), None) is not None]
    return [
        Problem(
            f"trainer.peft_kwargs.modules_to_save: {pattern!r} is no module of this model.",
            fix=did_you_mean(pattern, _short_names(names)),
        )
        for pattern in saved
        if not any(name == pattern or name.endswith(f".{pattern}") for name in names)
    ]


def matches(pattern: str, name: str, *, regex: bool) -> bool:
    """PEFT's rule: a string is a whole-name regular expression; a list holds names or their endings."""
    if regex:
        return re.fullmatch(pattern, name) is not None
    return name == pattern or name.endswith(f".{pattern}")


def _within(name: str, modules: Iterable[str]) -> bool:
    return any(re.match(rf"(^|.*\.){re.escape(module)}($|\..*)", name) for module in modules)


def _short_names(names: Iterable[str]) -> set[str]:
    """Names as users write them: the last part, and the last two."""
    parts = [name.split(".") for name in names]
    return {".".join(part[-length:]) for part in parts for length in (1, 2)}
