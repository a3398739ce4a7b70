"""Fine-tuning of vision-language models."""

from __future__ import annotations

import functools
from typing import Any

from transformers import PreTrainedTokenizerBase, ProcessorMixin

from supertrainer.models.heads import task_note
from supertrainer.models.mllm import MllmModel
from supertrainer.models.processors import tokenizer_of
from supertrainer.trainers.language import LanguageTrainer
from supertrainer.trainers.schema import MllmTrainerConfig


class MllmTrainer(LanguageTrainer):
    """Models that read pictures and text and write text.

    The dataset's rows make their own batches, by the model's processor: token ids, a mask, labels that aren't shifted,
    and whatever else the architecture reads (pixels, grids, sizes, masks), which goes to the model as it is. The loss
    is made outside of the model, whose own one would be a mean over each micro-batch.
    """

    config: MllmTrainerConfig
    model: MllmModel

    @functools.cached_property
    def processor(self) -> ProcessorMixin:
        """The model's processor, its tokenizer with the limit of the training."""
        processor, limit = self.model.processor(), self.max_length()
        if limit is not None:
            self.model.check_length(limit)
            tokenizer_of(processor).model_max_length = limit
        return processor

    @functools.cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The processor's tokenizer."""
        return tokenizer_of(self.processor)

    @property
    def reader(self) -> ProcessorMixin:
        return self.processor

    def noted(self) -> dict[str, Any]:
        """What the model is for, and the hash of its chat template."""
        return task_note(self.model.task) | super().noted()
