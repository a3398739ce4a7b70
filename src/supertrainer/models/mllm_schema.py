"""The config of a vision-language model. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from pydantic import Field, model_validator

from supertrainer.config.strict import ExistingSource, FrozenMapping, StrictModel
from supertrainer.core.errors import Problem
from supertrainer.models.base_schema import ModelConfig

Tower = Literal["vision", "projector", "language"]
"""What sees pictures · what turns that into tokens · what reads and writes text."""

Training = Literal["frozen", "lora", "full"]

TOWERS: tuple[Tower, ...] = get_args(Tower)
_WITH_ADAPTER: Mapping[Tower, Training] = {"vision": "frozen", "projector": "frozen", "language": "lora"}
_WITHOUT: Mapping[Tower, Training] = {"vision": "frozen", "projector": "full", "language": "full"}
_UNTRAINED: Mapping[Tower, Training] = {"vision": "full", "projector": "full", "language": "full"}


class TowerChoices(StrictModel):
    """How each part of the model is trained; null: as is usual for the method."""

    vision: Training | None = Field(default=None, description="The encoder of pictures. null: frozen.")
    projector: Training | None = Field(
        default=None,
        description="What makes tokens of its states: a projector, connector, merger or Q-Former. null: frozen beside "
        "an adapter, else full.",
    )
    language: Training | None = Field(
        default=None, description="The language model with its output layer. null: lora with an adapter, else full."
    )


class MllmModelConfig(ModelConfig):
    """A model that reads pictures and text and writes text."""

    task: Literal["image_text_to_text"] = Field(
        default="image_text_to_text", description="The next token of a conversation with pictures in it."
    )
    tokenizer: ExistingSource | None = Field(
        default=None, description="Where the processor is, of pictures and of text, when not at `source`."
    )
    words: tuple[str, ...] | None = Field(
        default=None,
        description="With `config`: a processor is made, whose tokenizer has a token for each of these words and for "
        "every byte, so that any text can be written.",
    )
    towers: TowerChoices = Field(
        default_factory=TowerChoices,
        description="frozen: as its source has it; lora: trainer.peft_kwargs sits on it; full: every weight is "
        "trained, beside an adapter too.",
    )
    quantized_towers: tuple[Tower, ...] = Field(
        default=("language",), description="Which towers trainer.bitsandbytes_kwargs quantizes."
    )
    tower_modules: FrozenMapping | None = Field(
        default=None,
        description="For an architecture whose towers aren't found: {vision: [REGEX, …], projector: […], language: […]}"
        " over the full names of its parameters.",
    )

    def choices(self, *, adapter: bool) -> dict[Tower, Training]:
        """How each tower is trained.

        Args:
            adapter: whether there are `trainer.peft_kwargs`.
        """
        usual = _WITH_ADAPTER if adapter else _UNTRAINED if self.source is None else _WITHOUT
        given = {name: vars(self.towers)[name] for name in TOWERS}
        return {name: given[name] or usual[name] for name in TOWERS}

    def _check_from_scratch(self) -> None:
        if self.words is None:
            super()._check_from_scratch()
        elif self.tokenizer is not None:
            raise ValueError("both of words and tokenizer are given. Fix: words=null, or tokenizer=null.")

    @model_validator(mode="after")
    def _words_are_of_an_untrained_model(self) -> MllmModelConfig:
        if self.words is not None and self.source is not None:
            raise ValueError("words make a tokenizer, and a source brings its own. Fix: words=null.")
        return self

    @model_validator(mode="after")
    def _tower_modules_are_of_towers(self) -> MllmModelConfig:
        unknown = sorted(set(self.tower_modules or {}) - set(TOWERS))
        if unknown:
            raise ValueError(f"tower_modules names {unknown[0]!r}. Fix: {', '.join(TOWERS)}.")
        return self

    @model_validator(mode="after")
    def _something_is_trained(self) -> MllmModelConfig:
        if all(vars(self.towers)[name] == "frozen" for name in TOWERS):
            raise ValueError("towers: all are frozen, so nothing would be trained. Fix: towers.language=lora or full.")
        return self


def tower_problems(model: MllmModelConfig, *, adapter: bool, quantized: bool) -> Iterable[Problem]:
    """What of the towers' training doesn't fit the method.

    Args:
        adapter: whether there are `trainer.peft_kwargs`.
        quantized: whether there are `trainer.bitsandbytes_kwargs`.
    """
    choices = model.choices(adapter=adapter)
    lora = [tower for tower in TOWERS if choices[tower] == "lora"]
    if lora and not adapter:
        yield Problem(
            f"model.towers.{lora[0]}=lora without trainer.peft_kwargs.",
            why="there is no adapter that could sit on it.",
            fix=f"model.towers.{lora[0]}=full, or trainer/common/peft_kwargs@trainer.peft_kwargs=lora.",
        )
    if adapter and not lora:
        yield Problem(
            "trainer.peft_kwargs with no tower that takes an adapter.",
            why="of model.towers none is lora.",
            fix="model.towers.language=lora, or trainer/common/peft_kwargs@trainer.peft_kwargs=none.",
        )
    whole = [tower for tower in model.quantized_towers if choices[tower] == "full"]
    if quantized and whole:
        rest = [tower for tower in model.quantized_towers if tower not in whole]
        yield Problem(
            f"model.towers.{whole[0]}=full, and model.quantized_towers quantizes it.",
            why="quantized weights can't be trained.",
            fix=f"model.quantized_towers=[{','.join(rest)}], or model.towers.{whole[0]}=lora.",
        )
