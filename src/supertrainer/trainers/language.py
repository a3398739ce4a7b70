"""What the trainers of models that write text share: a loss without a batch's logits, and the cache of past tokens."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import TrainingArguments

from supertrainer.checkpoint.manifest import Checkpoint
from supertrainer.core import distributed
from supertrainer.data.chat.template import TEMPLATE_KEY, template_hash
from supertrainer.data.collation import IGNORED
from supertrainer.inference.next_tokens import next_token_logits
from supertrainer.models.output import OutputTap, tap_output
from supertrainer.trainers.base import TaskTrainer
from supertrainer.trainers.chunked_loss import causal_objective
from supertrainer.trainers.lora_plus import faster_b
from supertrainer.trainers.losses import Objective
from supertrainer.trainers.results import TrainResult
from supertrainer.trainers.schema import LanguageTrainerConfig
from supertrainer.trainers.session import Session

log = logging.getLogger(__name__)


class LanguageTrainer(TaskTrainer):
    """Models that predict the next token.

    Only tokens that have a label go through the output layer, some at a time, so the logits of a batch never exist.
    """

    config: LanguageTrainerConfig
    _tap: OutputTap | None = None
    _use_cache = True

    def objective(self) -> Objective:
        smoothing = float(self.config.training_kwargs.get("label_smoothing_factor", 0.0))
        return causal_objective(self._tap, label_smoothing=smoothing)

    @property
    def train_rows(self) -> int:
        return len(self._train_rows)

    def rows(self, split: str) -> Any:
        """A split's rows; those of training, which are counted before they are trained on, made once."""
        return self._train_rows if split == "train" else super().rows(split)

    def noted(self) -> dict[str, Any]:
        """The hash of the chat template: an engine refuses to ask the model in another one."""
        self.rows("train")  # sets the template
        return {} if self.tokenizer.chat_template is None else {TEMPLATE_KEY: template_hash(self.tokenizer)}

    def max_length(self) -> int | None:
        length: int | None = self.dataset.config.max_length
        return length

    def build_module(self) -> nn.Module:
        module = super().build_module()
        self._use_cache = bool(module.config.to_dict().get("use_cache", True))  # type: ignore[operator, union-attr]
        with self._computing(module):
            self._look_at(module)
            self._tap = tap_output(module)
        return module

    def evaluate(self, module: nn.Module, rows: Any, *, batch_size: int) -> dict[str, float]:
        """The metric's scalars over all labelled tokens: the same for any batch size and number of processes."""
        self.metric.reset()
        found = next_token_logits(
            module,
            rows,
            tap=self._tap_of(module),
            pad_token_id=self.tokenizer.pad_token_id,
            batch_size=batch_size,
            rank=distributed.rank(),
            world_size=distributed.world_size(),
        )
        for logits, tokens in found:
            self.metric.update(logits, tokens)
        self.metric.gather()
        return self.metric.compute()

    def update_metric(self, logits: Tensor, rows: Any, numbers: Sequence[int]) -> None:
        """Adds the tokens of some rows, where (N, V) logits of all that have a label are there at once."""
        labels = np.concatenate([rows[number]["labels"][1:] for number in numbers])
        self.metric.update(logits, torch.from_numpy(labels[labels != IGNORED].astype(np.int64)))

    def regroup(self, optimizer: Optimizer, module: nn.Module) -> None:
        if self.config.lora_plus_ratio is not None:
            faster_b(optimizer, module, ratio=self.config.lora_plus_ratio)

    def _session(self, module: nn.Module, args: TrainingArguments) -> Session:
        session = super()._session(module, args)
        session.trainer.gives_back_memory = args.device.type == "cpu"
        return session

    @functools.cached_property
    def _train_rows(self) -> Any:
        return self._arranged(super().rows("train"))

    def _arranged(self, rows: Any) -> Any:
        """The rows of training as they are trained on."""
        return rows

    def _look_at(self, module: nn.Module) -> None:
        """Refuses a model that can't be trained as configured, before anything is."""

    def _tap_of(self, module: Any) -> OutputTap | None:
        """The tap of a module that this trainer has built, now or before."""
        known = self._tap is not None and self._tap.head is module.get_output_embeddings()
        return self._tap if known else tap_output(module)

    @contextlib.contextmanager
    def _generating(self, module: nn.Module) -> Iterator[None]:
        """Inside, the model makes logits, in the number formats of the training."""
        with self._computing(module), contextlib.nullcontext() if self._tap is None else self._tap.closed():
            yield

    def _train(self, module: nn.Module, latest: Checkpoint | None) -> TrainResult:
        with self._cache(module, False), contextlib.nullcontext() if self._tap is None else self._tap.open():
            return super()._train(module, latest)

    def _finish(self, module: nn.Module, session: Session | None) -> TrainResult:
        with self._cache(module, self._use_cache):
            return super()._finish(module, session)

    def _write_checkpoint(self, module: nn.Module, directory: Path) -> None:
        with self._cache(module, self._use_cache):
            super()._write_checkpoint(module, directory)

    @staticmethod
    @contextlib.contextmanager
    def _cache(module: Any, used: bool) -> Iterator[None]:
        """What the model's config says of the cache of past tokens: off in training, in a file as it was before."""
        before, module.config.use_cache = module.config.to_dict().get("use_cache", True), used
        try:
            yield
        finally:
            module.config.use_cache = before

    def _computing(self, module: nn.Module) -> Any:
        """The number formats of the training."""
        kwargs = self.config.training_kwargs
        dtype = torch.bfloat16 if kwargs.get("bf16") else torch.float16 if kwargs.get("fp16") else None
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(next(module.parameters()).device.type, dtype=dtype)
