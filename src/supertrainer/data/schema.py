"""Config classes of the datasets. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from supertrainer.config.strict import StrictModel
from supertrainer.config.tasks import WHOLE_TEXT_TASKS, task_of
from supertrainer.core.errors import Problem
from supertrainer.data.chat_schema import TEMPLATES as TEMPLATES
from supertrainer.data.chat_schema import ChatColumns as ChatColumns
from supertrainer.data.chat_schema import Layout as Layout
from supertrainer.data.chat_schema import LlmDatasetConfig as LlmDatasetConfig
from supertrainer.data.chat_schema import TemplateChoice as TemplateChoice
from supertrainer.data.chat_schema import TooLong as TooLong
from supertrainer.data.chat_schema import TrainOn as TrainOn
from supertrainer.data.mllm_schema import MllmDatasetConfig as MllmDatasetConfig
from supertrainer.data.source_schema import SPLITS as SPLITS
from supertrainer.data.source_schema import DatasetConfig as DatasetConfig
from supertrainer.data.source_schema import Format as Format
from supertrainer.data.source_schema import LimitsConfig as LimitsConfig
from supertrainer.data.source_schema import Policy as Policy
from supertrainer.data.source_schema import SplitsConfig as SplitsConfig


class TextColumns(StrictModel):
    """Names of the columns that hold a row's text and label."""

    text: str = Field("text", description="For token classification a list of words, or words with spaces between.")
    text_pair: str | None = Field(None, description="The second text of a pair: a hypothesis, an answer.")
    label: str = Field(
        "label",
        description="A label; for multi_label a list of labels, or labels with `label_separator` between; for "
        "regression a number; for token_classification a list of tags, or tags with spaces between; for masked_lm not "
        "read.",
    )

    @model_validator(mode="after")
    def _differ(self) -> TextColumns:
        names = [self.text, self.label, *([self.text_pair] if self.text_pair is not None else [])]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is named for two things. Fix: another column for one of them.")
        return self


class MaskingConfig(StrictModel):
    """Which tokens a masked language model has to tell, and what stands in their place (Devlin et al. 2019, 3.1)."""

    probability: float = Field(
        0.15, gt=0, lt=1, description="Share of a row's tokens that is to be told; at least one."
    )
    mask: float = Field(0.8, ge=0, le=1, description="Of them, the share that becomes the mask token.")
    random: float = Field(0.1, ge=0, le=1, description="Of them, the share that becomes any token; the rest stays.")
    whole_words: bool = Field(False, description="Take all sub-words of a word together.")

    @model_validator(mode="after")
    def _shares_fit(self) -> MaskingConfig:
        if self.mask + self.random > 1:
            raise ValueError(f"mask {self.mask:g} + random {self.random:g} is more than all. Fix: mask=0.8 random=0.1.")
        return self


class BertDatasetConfig(DatasetConfig):
    """Texts, or pairs of texts, with what `model.task` learns from them."""

    columns: TextColumns = TextColumns()
    labels: tuple[str, ...] | dict[str, str] | None = Field(
        None,
        description="Label names in the order of their ids; or the file's labels -> names, such as {0: bad, 1: good}; "
        "null: those of the train rows, sorted.",
    )
    max_length: int | None = Field(
        None, ge=4, description="Longest row in tokens, longer ones are cut; null: the tokenizer's own limit."
    )
    on_missing_label: Policy = Field("error", description="A row without a label.")
    label_separator: str = Field(
        ",", min_length=1, description="Between the labels of a text cell (multi_label); an empty cell has none."
    )
    on_broken_tags: Literal["error", "repair"] = Field(
        "error",
        description="An I- tag that doesn't go on from a B- or I- of its type (IOB1, say); repair: it becomes a B-.",
    )
    long_texts: Literal["truncate", "stride"] = Field(
        "truncate",
        description="Texts of more than max_length tokens. truncate: the rest is not read; stride: windows that "
        "overlap, each a training row of its own, and one prediction for all of a text's windows.",
    )
    overlap: int = Field(32, ge=0, description="Tokens that a window shares with the one before (long_texts=stride).")
    pooling: Literal["mean", "max"] = Field(
        "mean", description="How the logits of a text's windows become one prediction (long_texts=stride)."
    )
    masking: MaskingConfig = MaskingConfig()

    def rules(self, config: Any) -> Iterable[Problem]:
        if config.operation in ("infer", "benchmark"):
            return
        task = task_of(config)
        if self.long_texts == "stride" and task not in (*WHOLE_TEXT_TASKS, "masked_lm"):
            yield Problem(
                f"dataset.long_texts=stride with model.task={task}.",
                why="a word in two windows would have two tags.",
                fix="dataset.long_texts=truncate, and texts cut at the ends of sentences.",
            )
        paired = self.columns.text_pair is not None
        if paired and self.long_texts == "stride":
            yield Problem(
                "dataset.long_texts=stride with dataset.columns.text_pair.",
                why="windows go over one text.",
                fix="dataset.long_texts=truncate.",
            )
        if paired and task in ("token_classification", "masked_lm"):
            yield Problem(
                f"dataset.columns.text_pair={self.columns.text_pair} with model.task={task}, which reads one text.",
                fix="dataset.columns.text_pair=null.",
            )

    @model_validator(mode="after")
    def _windows_go_on(self) -> BertDatasetConfig:
        if self.long_texts == "stride" and self.max_length is not None and self.overlap > self.max_length // 2:
            raise ValueError(
                f"overlap={self.overlap} is more than half of max_length={self.max_length}: windows would hardly "
                f"go on. Fix: overlap={self.max_length // 4}."
            )
        return self

    @field_validator("labels", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {_label_text(raw): _label_text(name) for raw, name in value.items()}
        return tuple(_label_text(name) for name in value) if isinstance(value, list | tuple) else value

    @field_validator("labels")
    @classmethod
    def _are_several(cls, value: tuple[str, ...] | dict[str, str] | None) -> tuple[str, ...] | dict[str, str] | None:
        if value is None:
            return value
        names = list(value.values()) if isinstance(value, dict) else list(value)
        if not isinstance(value, dict) and len(set(names)) < len(names):
            raise ValueError(
                f"{next(name for name in names if names.count(name) > 1)!r} stands twice. Fix: every name once."
            )
        if len(set(names)) < 2:
            raise ValueError(
                f"{names} is no choice to learn. Fix: two or more labels, or null to take them from the data."
            )
        return value


def _label_text(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"a label is {str(value).lower()}: YAML reads yes, no, on and off so. Fix: put it in quotes.")
    return str(value) if isinstance(value, int) else value
