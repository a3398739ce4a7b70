"""The config of each task's model. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from supertrainer.config.tasks import EncoderTask
from supertrainer.models.base_schema import ModelConfig as ModelConfig
from supertrainer.models.base_schema import ModelKwargs as ModelKwargs
from supertrainer.models.decoder_schema import DecoderModelConfig as DecoderModelConfig
from supertrainer.models.mllm_schema import MllmModelConfig as MllmModelConfig


class LlmModelConfig(ModelConfig):
    """A causal language model."""

    task: Literal["causal_lm"] = Field(default="causal_lm", description="The next token of a text or conversation.")
    gguf_file: str | None = Field(
        default=None,
        description="Of a source that is a directory or a Hub id: the .gguf file in it that holds the model.",
    )
    added_tokens: tuple[str, ...] = Field(
        default=(),
        description="Tokens that the tokenizer gets in addition. Their embedding rows are trained, beside an adapter "
        "too; those that it knows already keep theirs as a start.",
    )

    @model_validator(mode="after")
    def _gguf_is_of_a_source(self) -> LlmModelConfig:
        if self.gguf_file is not None and self.source is None:
            raise ValueError(f"gguf_file={self.gguf_file!r} belongs to a source, and source is null. Fix: source=….")
        if self.gguf_file is not None and not self.gguf_file.lower().endswith(".gguf"):
            raise ValueError(f"gguf_file={self.gguf_file!r} doesn't end in .gguf. Fix: name the file.")
        return self

    @model_validator(mode="after")
    def _added_tokens_are_texts(self) -> LlmModelConfig:
        repeated = sorted({token for token in self.added_tokens if self.added_tokens.count(token) > 1})
        if repeated or not all(token.strip() for token in self.added_tokens):
            what = f"names {repeated[0]!r} twice" if repeated else "holds an empty token"
            raise ValueError(f"added_tokens {what}. Fix: each token once.")
        return self


class BertModelConfig(ModelConfig):
    """An encoder with a head for one task."""

    task: EncoderTask | None = Field(
        default=None,
        description="The head. sequence_classification: one label a text; multi_label: any number of labels a text; "
        "regression: a number a text; token_classification: a tag a word; masked_lm: the words that were masked. "
        "null: as the model was trained; to be trained, sequence_classification.",
    )
