"""transformers and PEFT in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from supertrainer.core.errors import ConfigError
from supertrainer.data.chat.template import TEMPLATE_KEY, require_same_template
from supertrainer.data.collation import EncodedRows
from supertrainer.data.masking import MaskedRows
from supertrainer.inference.allocator import keep_freed_memory
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.first_pass import BatchOf
from supertrainer.inference.generation import Answer, generate
from supertrainer.inference.logits import predict_logits
from supertrainer.inference.schema import GenerationConfig
from supertrainer.inference.streaming import AnswerStream
from supertrainer.inference.token_losses import TokenLosses, predict_token_losses
from supertrainer.models.saving import TrainedModel, load_trained
from supertrainer.models.sources import Source

T = TypeVar("T")


class HfEngine:
    """Runs a trained model on encoded rows. The model is read when it is first needed."""

    def __init__(
        self, config: HfEngineConfig, *, source: str | Path | Source | None = None, trained: TrainedModel | None = None
    ):
        """
        Args:
            config: batch size, device, dtype, attention.
            source: where the trained model is: a directory, run directory, package:// or Hub id.
            trained: the model itself, where it is loaded already; one of the two is needed.

        Raises:
            ConfigError: neither is given, or a GPU is asked for where there is none.
        """
        if (source is None) == (trained is None):
            raise ConfigError(
                "an engine needs one model: a source, or one that is loaded.", fix="model.source=runs/NAME."
            )
        if config.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("engine.device=cuda, and torch sees no GPU.", fix="engine.device=auto or cpu.")
        self.config = config
        self._source = source
        self._trained = trained
        self.tokens = 0  # of all rows that went through, padding not counted
        self.seconds = 0.0  # in the model

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        automatic = "cuda" if torch.cuda.is_available() else "cpu"
        return torch.device(automatic if self.config.device == "auto" else self.config.device)

    @property
    def trained(self) -> TrainedModel:
        """Model, tokenizer and label names.

        Raises:
            ConfigError: the source isn't a trained model, or its chat template isn't the one that it was trained with.
        """
        if self._trained is None:
            assert self._source is not None
            self._trained = load_trained(self._source, model_kwargs=self.config.model_kwargs, device=self.device)
            require_same_template(self._trained.noted.get(TEMPLATE_KEY), self._trained.tokenizer)
        return self._trained

    def logits(self, rows: EncodedRows | MaskedRows) -> Iterator[tuple[Tensor, list[int]]]:
        """Logits (B, C), of tokens (L, C), on the CPU with the numbers of their rows, longest first, each once."""
        trained = self.trained
        if self.device.type == "cpu":
            keep_freed_memory()
        pad_token_id = trained.tokenizer.pad_token_id
        batches = predict_logits(trained.model, rows, pad_token_id=pad_token_id, batch_size=self.config.batch_size)
        on_cpu = ((logits.float().cpu(), numbers) for logits, numbers in batches)
        yield from self._counted(on_cpu, tokens=lambda batch: int(rows.unit_lengths[batch[1]].sum()))

    def answers(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        generation: GenerationConfig,
        first_row: int = 0,
        batch_of: BatchOf | None = None,
    ) -> Iterator[tuple[int, tuple[Answer, ...]]]:
        """The numbers of the prompts with the answers to each, longest prompts first, as `generation.generate` says."""
        trained = self.trained
        found = generate(
            trained.model,
            trained.tokenizer,
            prompts,
            config=generation,
            batch_size=self.config.batch_size,
            first_row=first_row,
            batch_of=batch_of,
        )
        yield from self._counted(
            found, tokens=lambda item: sum(len(answer.tokens) for answer in item[1]) + len(prompts[item[0]])
        )

    def stream(self, prompt: Sequence[int], *, generation: GenerationConfig, row: int = 0) -> AnswerStream:
        """The answer to one prompt, piece by piece."""
        trained = self.trained
        return AnswerStream(trained.model, trained.tokenizer, prompt, config=generation, row=row)

    def token_losses(self, rows: EncodedRows) -> Iterator[tuple[TokenLosses, list[int]]]:
        """The losses of the labelled tokens of a language model's rows with their numbers, longest rows first."""
        trained = self.trained
        pad_token_id, batch_size = trained.tokenizer.pad_token_id, self.config.batch_size
        batches = predict_token_losses(trained.model, rows, pad_token_id=pad_token_id, batch_size=batch_size)
        yield from self._counted(batches, tokens=lambda batch: int(rows.lengths[batch[1]].sum()))

    def _counted(self, results: Iterator[T], *, tokens: Callable[[T], int]) -> Iterator[T]:
        """The same results; their time and the tokens of each are added up."""
        while True:
            started = time.perf_counter()
            try:
                result = next(results)
            except StopIteration:
                return
            self.seconds += time.perf_counter() - started
            self.tokens += tokens(result)
            yield result
