"""The heads of models: which transformers class reads each, and which one a saved model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
)

from supertrainer.config.tasks import DEFAULT_TASK, Task
from supertrainer.models.architecture import OWN_KEY, PROBLEM_TYPES

AUTO_CLASSES: Mapping[Task, Any] = {
    "sequence_classification": AutoModelForSequenceClassification,
    "multi_label": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "masked_lm": AutoModelForMaskedLM,
    "causal_lm": AutoModelForCausalLM,
}

# peft.TaskType; PEFT knows no masked language models, and needs none of its own for them.
ADAPTER_TASKS: Mapping[Task, str | None] = {
    "sequence_classification": "SEQ_CLS",
    "multi_label": "SEQ_CLS",
    "regression": "SEQ_CLS",
    "token_classification": "TOKEN_CLS",
    "masked_lm": None,
    "causal_lm": "CAUSAL_LM",
}


_CAUSAL = ("ForCausalLM", "LMHeadModel")


def saved_task(config: PreTrainedConfig) -> Task:
    """The head of a saved model, by the class and the kind of problem that its config.json names.

    A config that names neither is taken for a classifier's: reading it finds out whether the weights have a head.
    """
    name = (config.architectures or [""])[0]
    if name.endswith("ForTokenClassification"):
        return "token_classification"
    if name.endswith(("ForMaskedLM", "ForPreTraining")):
        return "masked_lm"
    if name.endswith(_CAUSAL):
        return "causal_lm"
    kinds = {problem: task for task, problem in PROBLEM_TYPES.items()}
    return kinds.get(config.problem_type or "", DEFAULT_TASK)


def noted(config: PreTrainedConfig) -> dict[str, Any]:
    """What training noted in config.json about how the model is to be used; empty for models made elsewhere."""
    return dict(config.to_dict().get(OWN_KEY) or {})
