"""The config that every task's model has, and how weights are held. No torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from supertrainer.config.strict import ExistingSource, FrozenMapping, NotIdentity, StrictModel, TargetModel


class ModelKwargs(StrictModel):
    """How weights are held and attention is computed. A closed list: nothing else reaches `from_pretrained`."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto",
        description="auto: float32 on a CPU, where 16-bit types are many times slower; the checkpoint's own on a GPU, "
        "float16 read as float32 since an optimizer can't step it.",
    )
    attn_implementation: Literal["auto", "eager", "sdpa", "flash_attention_2", "flex_attention"] = Field(
        default="auto",
        description="auto: the fastest that this architecture has without a further package (sdpa, else eager).",
    )


class ModelConfig(TargetModel):
    """Which weights or architecture, and from where. What every task's model has."""

    source: ExistingSource | None = Field(
        default=None,
        description="Hub id, local directory, package://MODULE/PATH, or a run directory of ours (its trained model). "
        "null builds `config` from scratch.",
    )
    revision: str | None = Field(default=None, description="Branch, tag or commit of a Hub id.")
    config: FrozenMapping | None = Field(
        default=None,
        description="From scratch: model_type and the keys of that architecture's config, such as hidden_size.",
    )
    config_overrides: FrozenMapping = Field(
        default_factory=dict,
        description="Keys of the source's architecture config to change, such as hidden_dropout_prob: 0.0.",
    )
    tokenizer: ExistingSource | None = Field(default=None, description="Where the tokenizer is, when not at `source`.")
    padding_side: Literal["left", "right"] | None = Field(
        default=None, description="null: the tokenizer's own. Encoders with absolute positions pad right only."
    )
    trust_remote_code: Annotated[bool, NotIdentity()] = Field(
        default=False, description="Run the Python code that comes with the source. Off unless you set it."
    )

    @model_validator(mode="after")
    def _one_origin(self) -> ModelConfig:
        if (self.source is None) == (self.config is None):
            state = "neither" if self.source is None else "both"
            raise ValueError(
                f"{state} of source and config is given. Fix: source=… for pretrained weights, or "
                "source=null with config={model_type: bert, …} for an untrained model."
            )
        if self.config is not None:
            self._check_from_scratch()
        return self

    def _check_from_scratch(self) -> None:
        if "model_type" not in (self.config or {}):
            raise ValueError("config has no model_type. Fix: config.model_type=bert (or another architecture's name).")
        if self.tokenizer is None:
            raise ValueError(
                "config builds an untrained model, which brings no tokenizer. Fix: tokenizer=<where one is>."
            )
        if self.revision is not None:
            raise ValueError(
                f"revision={self.revision!r} belongs to a Hub source, and source is null. Fix: revision=null."
            )
        if self.config_overrides:
            raise ValueError(
                "config_overrides changes a source's architecture, and source is null. Fix: write the keys into config."
            )
