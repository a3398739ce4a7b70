"""The heads of models: which transformers class reads each, and which one a saved model has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
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
