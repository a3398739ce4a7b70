"""Which modules of the chosen towers an adapter sits on, by their full names."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedModel

from supertrainer.config.nearest import did_you_mean
from supertrainer.core.errors import ConfigError, Problem, raise_all
from supertrainer.models.adapters import ADAPTABLE, ALL_LINEAR, LINEAR, matches
from supertrainer.models.mllm_schema import Tower
from supertrainer.models.towers import Towers


def lora_targets(
    model: PreTrainedModel, towers: Towers, adapted: Sequence[Tower], patterns: str | Sequence[str] | None
) -> list[str]:
    """Full names of what an adapter sits on.

    Args:
        model: without an adapter.
        adapted: towers that get one.
        patterns: as `peft.LoraConfig.target_modules` has them: names or their endings, or one regular expression; auto,
            all-linear and None: every linear layer of these towers but the output layer.

    Raises:
        ConfigError: a pattern that matches nothing in these towers, with where it would match; no tower gets one.
    """
    if not adapted:
        raise ConfigError(
            "trainer.peft_kwargs with no tower that takes an adapter.",
            why="model.towers has none that is lora.",
            fix="model.towers.language=lora, or trainer/common/peft_kwargs@trainer.peft_kwargs=none.",
        )
    output = model.get_output_embeddings()
    places = {name: module for name, module in model.named_modules() if isinstance(module, ADAPTABLE)}
    inside = {name: module for name, module in places.items() if towers.of(name) in adapted and module is not output}
    if patterns is None or patterns in ALL_LINEAR:
        return [name for name, module in inside.items() if isinstance(module, LINEAR)]
    regex = isinstance(patterns, str)
    listed = [patterns] if isinstance(patterns, str) else list(patterns)
    raise_all(
        ConfigError,
        [
            _nothing(pattern, towers, adapted, [name for name in places if matches(pattern, name, regex=regex)], inside)
            for pattern in listed
            if not any(matches(pattern, name, regex=regex) for name in inside)
        ],
    )
    return [name for name in inside if any(matches(pattern, name, regex=regex) for pattern in listed)]


def _nothing(
    pattern: str, towers: Towers, adapted: Sequence[Tower], elsewhere: Sequence[str], inside: dict[str, object]
) -> Problem:
    found = sorted({str(towers.of(name)) for name in elsewhere} - set(adapted))
    where = " or ".join(adapted)
    if found:
        return Problem(
            f"trainer.peft_kwargs.target_modules: {pattern!r} matches nothing in {where}.",
            why=f"it matches {elsewhere[0]}, which is of the {found[0]} tower.",
            fix=f"model.towers.{found[0]}=lora, or leave {pattern!r} out.",
        )
    endings = {name.rpartition(".")[2] for name in inside}
    return Problem(
        f"trainer.peft_kwargs.target_modules: {pattern!r} matches nothing that an adapter could sit on in {where}.",
        fix=did_you_mean(pattern, endings),
    )
