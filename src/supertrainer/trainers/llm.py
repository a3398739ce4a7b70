"""Fine-tuning of causal language models."""

from __future__ import annotations

import functools
import logging
from typing import Any

from torch import nn
from transformers import TrainingArguments

from supertrainer.data.collation import EncodedRows
from supertrainer.data.packing import PackedRows, first_fit_decreasing, one_row_a_pack
from supertrainer.trainers.isolation import require_isolation
from supertrainer.trainers.language import LanguageTrainer
from supertrainer.trainers.samples import SampleGenerations, sample_prompts
from supertrainer.trainers.samples_file import SAMPLES_FILE
from supertrainer.trainers.schema import LlmTrainerConfig
from supertrainer.trainers.session import Session

log = logging.getLogger(__name__)


class LlmTrainer(LanguageTrainer):
    """Language models that predict the next token of a text or of a conversation's answers.

    Texts may share a row (`packing`), where they don't see each other.
    """

    config: LlmTrainerConfig
    _samples: SampleGenerations | None = None  # where validation rows are answered

    def evaluate(self, module: nn.Module, rows: Any, *, batch_size: int) -> dict[str, float]:
        found = super().evaluate(module, rows, batch_size=batch_size)
        return found | ({} if self._samples is None else self._samples(module))

    def _look_at(self, module: nn.Module) -> None:
        if self.config.packing != "none":
            require_isolation(module, packing=self.config.packing)

    def _arranged(self, rows: EncodedRows) -> EncodedRows | PackedRows:
        if self.config.packing == "none":
            return rows
        if self.config.packing == "padding_free":
            return PackedRows(rows, one_row_a_pack(rows.lengths), flat=True)
        capacity = self.max_length()
        assert capacity is not None, "the config's rules ask for it"
        plan = first_fit_decreasing(rows.lengths, capacity=capacity, seed=self.seed)
        filled = int(rows.lengths.sum()) / (len(plan) * capacity)
        log.info("%d texts fill %d packs of %d tokens to %.1f %%", len(rows), len(plan), capacity, 100 * filled)
        # Flash attention finds documents by their positions only where a batch is a single row.
        return PackedRows(rows, plan, flat=self.config.model_kwargs.attn_implementation.startswith("flash"))

    def _session(self, module: nn.Module, args: TrainingArguments) -> Session:
        session = super()._session(module, args)
        if args.eval_strategy != "no" and self.config.sample_rows:
            count, tokenizer = self.config.sample_rows, self.tokenizer
            self._samples = SampleGenerations(
                sample_prompts(self.dataset, "validation", count=count, tokenizer=tokenizer, module=module),
                tokenizer=tokenizer,
                path=self.run.path / SAMPLES_FILE,
                max_new_tokens=self.config.sample_tokens,
                around=functools.partial(self._generating, module),
            )
            session.trainer.add_callback(self._samples)
        return session
