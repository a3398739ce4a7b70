"""Config classes of conversations: which columns, which template, what is learnt. No torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from supertrainer.config.strict import FrozenMapping, NotIdentity, StrictModel, thaw
from supertrainer.core.errors import Problem
from supertrainer.data.source_schema import DatasetConfig, Policy


class NamedColumns(StrictModel):
    """The file's own names of columns; null: the usual names."""

    @model_validator(mode="after")
    def _differ(self) -> NamedColumns:
        names = list(self.named().values())
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"column {twice[0]!r} is named for two things. Fix: another column for one of them.")
        return self

    def named(self) -> dict[str, str]:
        """Our name -> the file's, of the columns that are named."""
        return {key: name for key, name in vars(self).items() if name is not None}


class ChatColumns(NamedColumns):
    """The file's own names of the columns. null: the usual names, such as `messages`, `conversations`, `output`."""

    messages: str | None = Field(None, description="A list of messages, also as a JSON text.")
    tools: str | None = Field(None, description="Descriptions of the tools that may be called; null: `tools`.")
    system: str | None = Field(None, description="The system turn of a row; null: `system`.")
    instruction: str | None = Field(None, description="Alpaca's instruction.")
    input: str | None = Field(None, description="Alpaca's input, below the instruction.")
    output: str | None = Field(None, description="Alpaca's answer.")
    prompt: str | None = Field(None, description="A text, or messages.")
    completion: str | None = Field(None, description="What follows the prompt: a text, or messages.")
    text: str | None = Field(None, description="Raw text.")


def _known_template(value: str | None) -> str | None:
    if value is None or value in TEMPLATES:
        return value
    if not value.endswith(".jinja"):
        raise ValueError(
            f"{value!r} is no template. Fix: one of {', '.join(TEMPLATES)}; a file NAME.jinja; null: the model's own."
        )
    return _existing_file(value)


def _existing_file(value: str) -> str:
    if not Path(value).expanduser().is_file():
        raise ValueError(f"{value} is not there. Fix: the path of a file, looked up from {Path.cwd()}.")
    return value


def _json_values(values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, value in values.items():
        if not name.isidentifier():
            raise ValueError(f"{name!r} is no name. Fix: as the template reads it, such as enable_thinking.")
        try:
            json.dumps(thaw(value), allow_nan=False).encode()
        except (TypeError, ValueError):
            raise ValueError(f"{name} is {value!r}. Fix: a text, number, true, false, null, list or mapping.") from None
    return values


def _iso_date(value: str | None) -> str | None:
    try:
        return value if value is None else date.fromisoformat(value).isoformat()
    except ValueError:
        raise ValueError(f"{value!r} is no day. Fix: year-month-day, such as 2026-03-01.") from None


TEMPLATES = ("alpaca", "chatml", "gemma", "llama3", "mistral", "plain")
"""Chat templates that ship: `data/chat/templates/<name>.jinja`."""

TemplateKwargs = Annotated[FrozenMapping, AfterValidator(_json_values)]
TemplateDate = Annotated[str | None, AfterValidator(_iso_date)]
TemplateChoice = Annotated[str | None, AfterValidator(_known_template)]
TooLong = Literal["error", "drop", "left", "right", "split"]
TrainOn = Literal["assistant", "last", "all", "marked"]
Layout = Literal["auto", "messages", "sharegpt", "alpaca", "prompt_completion", "dialogue", "text"]


class ConversationDatasetConfig(DatasetConfig):
    """What rows have that a chat template writes: which template, what is learnt, how long they may be."""

    chat_template: TemplateChoice = Field(
        None,
        description=f"null: the model's own; {', '.join(TEMPLATES)}; or a .jinja file. It is saved with the model.",
    )
    template_kwargs: TemplateKwargs = Field(
        default_factory=dict,
        description="Arguments of the chat template, such as {enable_thinking: false}. They are saved in it.",
    )
    template_date: TemplateDate = Field(
        None,
        description="The day that a template writes as today's, such as 2026-03-01; it is saved in the template. null: "
        "the one that the model was trained with, else 2024-07-26.",
    )
    train_on: TrainOn = Field(
        "assistant",
        description="What is learnt of a conversation. assistant: every answer, but those with `train: false` or "
        "`weight: 0`; last: the last answer; marked: answers with `train: true` or `weight: 1`; all: every token. "
        "Of raw text every token is learnt, of pictures none.",
    )
    max_length: int | None = Field(
        None,
        ge=4,
        description="Longest row in tokens, special ones and those of pictures too; null: the tokenizer's own limit.",
    )
    on_malformed_rows: Policy = Field("error", description="A row that isn't of its layout.")
    on_nothing_to_learn: Policy = Field(
        "error", description="A row without an answer, or none of whose answers is left after the cut."
    )
    min_trained_share: float = Field(
        0.005,
        ge=0,
        lt=1,
        description="The smallest share of a split's text tokens that may be learnt; less is an error.",
    )
    cache: Annotated[str | None, NotIdentity] = Field(
        None,
        description="Keep token ids for the next run with the same rows, tokenizer and settings. null: no; auto: in "
        "~/.cache/supertrainer/tokens (XDG_CACHE_HOME counts); or a directory.",
    )

    def rules(self, config: Any) -> Iterable[Problem]:
        yield from super().rules(config)
        given = self.template_kwargs or self.template_date
        if given and self.chat_template is not None:  # what the model's own reads is told with its tokenizer
            from supertrainer.data.chat.template import template_source
            from supertrainer.data.chat.template_arguments import TemplateArguments, read_names, unread

            yield from unread(TemplateArguments.of(self), read_names(template_source(self.chat_template)))


class LlmDatasetConfig(ConversationDatasetConfig):
    """Conversations, prompts with completions, or raw texts, for a causal language model."""

    layout: Layout = Field(
        "auto",
        description="How a row is laid out. auto: by the names of its columns. dialogue: turns of two people, as texts "
        "or with a sender, the first of whom is the user.",
    )
    columns: ChatColumns = ChatColumns()
    on_too_long: TooLong = Field(
        "error",
        description="Rows of more than max_length tokens. left, right: cut there, left keeps the token that begins a "
        "text; split: several rows of at most max_length tokens.",
    )
