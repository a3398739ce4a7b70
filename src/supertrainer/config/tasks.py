"""What a model can be trained for. No torch."""

from __future__ import annotations

from typing import Any, Literal

EncoderTask = Literal["sequence_classification", "multi_label", "regression", "token_classification", "masked_lm"]
"""One label a text · any number of labels · a number · a tag for every word · the words that were masked."""

Task = Literal[EncoderTask, "causal_lm", "image_text_to_text"]
"""An encoder's · the next token of a text or conversation · the same where pictures stand between the texts."""

DEFAULT_TASK: Task = "sequence_classification"
WHOLE_TEXT_TASKS: frozenset[Task] = frozenset({"sequence_classification", "multi_label", "regression"})
NAMED_TASKS: frozenset[Task] = frozenset({"sequence_classification", "multi_label", "token_classification"})
"""Those whose labels are names out of a fixed set."""
GENERATIVE_TASKS: frozenset[Task] = frozenset({"causal_lm", "image_text_to_text"})
"""Those that go on with a text."""
LANGUAGE_TASKS: frozenset[Task] = frozenset({"masked_lm", *GENERATIVE_TASKS})
"""Those that learn the text itself: it has no labels beside it."""
PRETRAINING = "pretraining"
"""`model.task` of a language model that is trained from scratch: own model, streams and loop instead of a head."""


def task_of(config: Any) -> Task:
    """What a config trains for: `model.task`, else one label a text.

    Args:
        config: the whole config (`supertrainer.config.spine.Config`).
    """
    found: Task | None = None if config.model is None else vars(config.model).get("task")
    return found or DEFAULT_TASK


def is_pretraining(config: Any) -> bool:
    """Whether a config trains a language model from scratch."""
    return config.model is not None and vars(config.model).get("task") == PRETRAINING
