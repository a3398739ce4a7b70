"""Encoders with a head for one task."""

from __future__ import annotations

from typing import Any

from supertrainer.config.tasks import DEFAULT_TASK, Task
from supertrainer.models.base import TaskModel
from supertrainer.models.heads import ADAPTER_TASKS, AUTO_CLASSES
from supertrainer.models.schema import BertModelConfig


class BertModel(TaskModel):
    """BERT, RoBERTa, DistilBERT, ModernBERT, …: any encoder that transformers can put a head on."""

    config: BertModelConfig

    @property
    def task(self) -> Task:
        return self.config.task or DEFAULT_TASK

    @property
    def adapter_task(self) -> str | None:
        return ADAPTER_TASKS[self.task]

    @property
    def auto_class(self) -> Any:
        return AUTO_CLASSES[self.task]
