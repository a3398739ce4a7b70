"""What the model answers to a few fixed prompts as it is trained: samples.jsonl, and scalars of the evaluation."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from supertrainer.core.distributed import on_main_then_broadcast
from supertrainer.core.errors import DataError
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.chat.turns import as_text
from supertrainer.inference.generation import generate, position_limit
from supertrainer.inference.schema import GenerationConfig
from supertrainer.metrics.generation import GenerationSums
from supertrainer.trainers.samples_file import write_samples

log = logging.getLogger(__name__)
PREFIX = "sample_"


@dataclass(frozen=True)
class SamplePrompt:
    """A prompt of the validation rows.

    Attributes:
        row: its number in the split.
        text: to read.
        ids: token ids, with the opening of the answer.
        reference: the answer that was written.
    """

    row: int
    text: str
    ids: tuple[int, ...]
    reference: str


class SampleGenerations(TrainerCallback):
    """Answers the prompts at each evaluation. A callback, so that it knows the step; called with the model, it answers.

    The likeliest token is taken each time and no random state is touched, so a run computes the same with and without
    it. The model is put into eval mode and back, module by module; keys and values are kept whatever its config says.
    """

    def __init__(
        self,
        prompts: Sequence[SamplePrompt],
        *,
        tokenizer: PreTrainedTokenizerBase,
        path: Path,
        max_new_tokens: int = 64,
        batch_size: int = 8,
        around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
    ) -> None:
        """
        Args:
            prompts: to be answered.
            tokenizer: of the model.
            path: samples.jsonl.
            max_new_tokens: of an answer.
            batch_size: answers that are generated at once.
            around: what the model has to be in while it generates, such as its own precision.
        """
        self._prompts = tuple(prompts)
        self._tokenizer = tokenizer
        self._path = path
        self._generation = GenerationConfig(max_new_tokens=max_new_tokens)
        self._batch_size = batch_size
        self._around = around
        self._step = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step = state.global_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._step = state.global_step

    def __call__(self, module: nn.Module) -> dict[str, float]:
        """Answers the prompts, writes them down, and gives the means of their scores; every process calls it.

        Args:
            module: as it is trained, without the wrapper of several processes.

        Raises:
            OSError: the disk is full; what was in the file is intact.
        """
        if not self._prompts:
            return {}
        scores: dict[str, float] = on_main_then_broadcast(lambda: self._answer(module))
        return scores

    def _answer(self, module: nn.Module) -> dict[str, float]:
        sums, rows = GenerationSums(), []
        with self._around():
            found = dict(
                generate(
                    module,
                    self._tokenizer,
                    [prompt.ids for prompt in self._prompts],
                    config=self._generation,
                    batch_size=self._batch_size,
                )
            )
        for number, prompt in enumerate(self._prompts):
            [answer] = found[number]
            sums.add(answer.text, reference=prompt.reference, tokens=len(answer.tokens), ended=answer.ended)
            rows.append(
                {
                    "step": self._step,
                    "row": prompt.row,
                    "prompt": prompt.text,
                    "reference": prompt.reference,
                    "generated": answer.text,
                    "finish": answer.finish,
                }
            )
        write_samples(self._path, rows, step=self._step)
        return {PREFIX + name: value for name, value in sums.compute().items()}


def sample_prompts(
    dataset: Any, split: str, *, count: int, tokenizer: PreTrainedTokenizerBase, module: nn.Module
) -> list[SamplePrompt]:
    """At most `count` prompts, evenly spaced over a split, of those rows that have an answer and leave room for one.

    Args:
        dataset: it has `load()` and `conversation(split, number)`.
        split: of which rows.
        count: how many.
        tokenizer: with the template that the model is trained in.
        module: the model, for its positions.
    """
    size, limit = len(dataset.load()[split]), position_limit(module)
    chosen: list[SamplePrompt] = []
    for number in range(0, size, max(1, size // count)) if count else ():
        talk = dataset.conversation(split, number)
        answer = talk.answer_text
        if answer is None or len(chosen) == count:
            continue
        try:
            ids = render_prompt(talk.prompt, tokenizer, tools=talk.tools)
        except DataError as error:  # it was left out of the rows, by dataset.on_malformed_rows=drop
            log.info("Row %d of %s isn't answered: %s", number, split, error.problems[0].what)
            continue
        if limit is None or len(ids) < limit:
            chosen.append(SamplePrompt(number, as_text(talk.prompt), tuple(ids), answer))
    return chosen
