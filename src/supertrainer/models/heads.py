"""The heads of models: which transformers class reads each, and which one a saved model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from supertrainer.config.tasks import DEFAULT_TASK, Task
from supertrainer.models.architecture import OWN_KEY, PROBLEM_TYPES

AUTO_CLASSES: Mapping[Task, Any] = {
    "sequence_classification": AutoModelForSequenceClassification,
    "multi_label": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "token_classification": AutoModelForTokenClassification,
    "masked_lm": AutoModelForMaskedLM,
    "causal_lm": AutoModelForCausalLM,
    "image_text_to_text": AutoModelForImageTextToText,
}

# peft.TaskType; PEFT knows no masked language models, and needs none of its own for them.
ADAPTER_TASKS: Mapping[Task, str | None] = {
    "sequence_classification": "SEQ_CLS",
    "multi_label": "SEQ_CLS",
    "regression": "SEQ_CLS",
    "token_classification": "TOKEN_CLS",
    "masked_lm": None,
    "causal_lm": "CAUSAL_LM",
    "image_text_to_text": "CAUSAL_LM",
}


_CAUSAL = ("ForCausalLM", "LMHeadModel")
_WITH_PICTURES = frozenset(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values())
_TASK_NOTE = "task"


def auto_class_of(task: Task, config: PreTrainedConfig | None) -> Any:
    """The transformers class that reads a task's models.

    Args:
        config: of the model. Code that comes with one may have registered a model of pictures as a causal one.
    """
    if task == "image_text_to_text" and config is not None:
        code = config.to_dict().get("auto_map") or {}
        if "AutoModelForImageTextToText" not in code and "AutoModelForCausalLM" in code:
            return AutoModelForCausalLM
    return AUTO_CLASSES[task]


def task_note(task: Task) -> dict[str, Any]:
    """What of a model's use is noted where its class doesn't say what it is for (`noted`)."""
    return {_TASK_NOTE: task}


def saved_task(config: PreTrainedConfig) -> Task:
    """The head of a saved model, by what training noted, or the class and the kind of problem that config.json names.

    A config that names neither is taken for a classifier's: reading it finds out whether the weights have a head.
    """
    if (known := noted(config).get(_TASK_NOTE)) in AUTO_CLASSES:
        return known  # type: ignore[return-value]
    name = (config.architectures or [""])[0]
    if name.endswith("ForTokenClassification"):
        return "token_classification"
    if name.endswith(("ForMaskedLM", "ForPreTraining")):
        return "masked_lm"
    if name.endswith(_CAUSAL):
        return "causal_lm"
    if name in _WITH_PICTURES:
        return "image_text_to_text"
    kinds = {problem: task for task, problem in PROBLEM_TYPES.items()}
    return kinds.get(config.problem_type or "", DEFAULT_TASK)


def noted(config: PreTrainedConfig) -> dict[str, Any]:
    """What training noted in config.json about how the model is to be used; empty for models made elsewhere."""
    return dict(config.to_dict().get(OWN_KEY) or {})


def start_at_frequencies(model: nn.Module, counts: Tensor) -> bool:
    """Lets an output over a vocabulary that has learnt nothing begin with how common each token is.

    A bias of zeros is that of a new head, and a long way from any language: hundreds of steps would go into it alone.

    Args:
        model: whose output is trained; a frozen one stays as it is, since no adapter would hold the change.
        counts: of each token among the training rows, (V,); tokens beyond them count as never seen.

    Returns:
        Whether the output was a new one.
    """
    output = model.get_output_embeddings()  # type: ignore[operator]  # of every transformers model
    bias = None if output is None else output.bias
    if bias is None or not bias.requires_grad or bool(bias.detach().any()):
        return False
    seen = torch.ones(len(bias), dtype=torch.float64)  # one of each, so that none has probability 0
    seen[: len(counts)] += counts.double()
    with torch.no_grad():
        bias.copy_((seen / seen.sum()).log())
    return True
