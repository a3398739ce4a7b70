"""Causal language models."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from supertrainer.config.tasks import Task
from supertrainer.core.errors import ConfigError
from supertrainer.models.architecture import require_unquantized
from supertrainer.models.base import TaskModel
from supertrainer.models.generation import make_writable
from supertrainer.models.labels import module_name
from supertrainer.models.loading import Loaded
from supertrainer.models.schema import LlmModelConfig
from supertrainer.models.sources import Source, find_source
from supertrainer.models.tokenizers import find_source_of_tokenizer, read_tokenizer

log = logging.getLogger(__name__)


class LlmModel(TaskModel):
    """Llama, Qwen, Gemma, Mistral, Phi, SmolLM, …: any decoder that predicts the next token.

    Its weights may come from a GGUF file, which is converted once (`supertrainer.models.gguf`).
    """

    config: LlmModelConfig

    @property
    def task(self) -> Task:
        return self.config.task

    @functools.cached_property
    def source(self) -> Source | None:
        """Where the weights are; of a GGUF file the directory that it was converted to. None for an untrained model.

        Raises:
            ConfigError: the source isn't there, isn't a model, or is quantized for good.
        """
        if self.config.source is None:
            return None
        return find_source(
            self.config.source,
            revision=self.config.revision,
            with_code=self.config.trust_remote_code,
            gguf_file=self.config.gguf_file,
        )

    def base_reference(self) -> dict[str, str | None] | None:
        reference = super().base_reference()
        return reference if reference is None else {**reference, "gguf_file": self.config.gguf_file}

    def build(self, **how: Any) -> nn.Module:
        """See `TaskModel.build`. What the model notes for generating can be written back, whatever its source noted."""
        module = super().build(**{"label_names": (), **how})
        make_writable(module)
        return module

    def _read_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer with the added tokens. It pads after the text, as training does."""
        tokenizer = self._plain_tokenizer()
        added = tokenizer.add_tokens(list(self.config.added_tokens))
        if self.config.added_tokens:
            log.info("model.added_tokens: %d are new to the tokenizer", added)
        return tokenizer

    def _plain_tokenizer(self) -> PreTrainedTokenizerBase:
        return read_tokenizer(
            find_source_of_tokenizer(self.config.tokenizer, model=self.source).directory,
            padding_side=self.config.padding_side or "right",
            trust_remote_code=self.config.trust_remote_code,
            borrows_padding=True,
        )

    def _own_config(self, tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedConfig:
        config = super()._own_config(tokenizer)
        require_unquantized(config, source=self.config.source)
        return config

    def _unseen_tokens(self, tokenizer: PreTrainedTokenizerBase) -> Sequence[int]:
        if not self.config.added_tokens:
            return ()
        known = len(self._plain_tokenizer())
        return [number for number in self._added(tokenizer) if number >= known]

    def _added(self, tokenizer: PreTrainedTokenizerBase) -> list[int]:
        return sorted(tokenizer.convert_tokens_to_ids(list(self.config.added_tokens)))

    def _trained_whole(self, loaded: Loaded, grown: Sequence[str]) -> list[str]:
        """Nothing: of a grown embedding the new rows alone are trained (`_further_adapter_options`)."""
        new = [*loaded.new_modules, *loaded.new_in_head]
        if new:
            raise ConfigError(
                f"model.source={self.config.source} has no weights for {', '.join(new[:4])}.",
                why="a language model whose parts are new has to be trained whole.",
                fix="name a causal language model, or trainer/common/peft_kwargs@trainer.peft_kwargs=none.",
            )
        return []

    def _further_adapter_options(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, peft_kwargs: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        held = len(tokenizer) if self.source is None else self._own_config(None).vocab_size
        rows = sorted({*self._added(tokenizer), *range(held, len(tokenizer))})
        if not rows:
            return {}
        given, output = model.get_input_embeddings(), model.get_output_embeddings()
        places = [given] if output.weight is given.weight else [given, output]
        return {"trainable_token_indices": {module_name(model, place): rows for place in places}}
