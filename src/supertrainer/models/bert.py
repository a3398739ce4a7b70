"""Encoders with a head for one task."""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import AutoModelForSequenceClassification

from supertrainer.models.base import TaskModel


class BertModel(TaskModel):
    """BERT, RoBERTa, DistilBERT, ModernBERT, …: any encoder that transformers can put a head on."""

    adapter_task: ClassVar[str] = "SEQ_CLS"

    @property
    def auto_class(self) -> Any:
        return AutoModelForSequenceClassification
