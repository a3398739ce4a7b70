"""Encoders with a head for one task."""

from __future__ import annotations

from collections.abc import Sequence

from supertrainer.config.tasks import DEFAULT_TASK, Task
from supertrainer.core.errors import ConfigError
from supertrainer.models.base import TaskModel
from supertrainer.models.labels import without_output
from supertrainer.models.loading import Loaded
from supertrainer.models.schema import BertModelConfig


class BertModel(TaskModel):
    """BERT, RoBERTa, DistilBERT, ModernBERT, …: any encoder that transformers can put a head on."""

    config: BertModelConfig

    @property
    def task(self) -> Task:
        return self.config.task or DEFAULT_TASK

    def _trained_whole(self, loaded: Loaded, grown: Sequence[str]) -> list[str]:
        """The head of a masked language model is part of what was pretrained, and tied to the embeddings: of it, only
        what is new.
        """
        if self.task != "masked_lm":
            return super()._trained_whole(loaded, grown)
        if grown:
            raise ConfigError(
                "the tokenizer has tokens that the model doesn't know, and model.task=masked_lm trains an adapter.",
                why="new rows of the embedding are rows of the output too, and an adapter trains only one of them.",
                fix="trainer/common/peft_kwargs@trainer.peft_kwargs=none trains every weight.",
            )
        return without_output(loaded.model, [*loaded.new_modules, *loaded.new_in_head])
