"""The benchmark of language models: losses of given answers and generated ones in, scores before and after out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from supertrainer.benchmark.base import Record, TaskBenchmark, spaced
from supertrainer.benchmark.llm_scores import DEFINITIONS, LlmOutputs, LlmScores, of_tokens
from supertrainer.benchmark.records import SAMPLE_CHARACTERS
from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Sample
from supertrainer.benchmark.rows import Conversations
from supertrainer.benchmark.schema import LlmBenchmarkConfig
from supertrainer.config.tasks import Task
from supertrainer.inference.generation import Answer
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import digits_of

DIGITS = 6


class LlmBenchmark(TaskBenchmark[Conversations, LlmOutputs]):
    """Scores the answers of conversations: each token given those before it, and some answers as they are generated.

    A record is {row, prompt, true, predicted, loss, tokens}; `predicted`, `finish` and the scores of an answer are
    there for rows that were answered, `before` where the model was asked as it was before it was trained.
    """

    metric: LlmScores

    def __init__(
        self,
        config: LlmBenchmarkConfig,
        *,
        metric: Metric[Any, Any],
        model: ModelFacts,
        data: DataFacts,
        train: Conversations | None = None,
        task: Task = "causal_lm",
    ) -> None:
        """
        Args:
            config: the split, and how many rows are answered.
            metric: of the task; it says which scalar stands first.
            model: which model makes the predictions, for the result.
            data: where the rows come from, for the result.
            train: rows to count tokens of for a baseline; without them there is none.
            task: there is only one.
        """
        scores = LlmScores(metric.main, greater_is_better=metric.greater_is_better)
        super().__init__(config, metric=scores, model=model, data=data)
        self._generate_rows = config.generate_rows
        self._train = train if config.baselines else None
        self._before: dict[int, str] = {}
        self._baselines: list[Baseline] = []

    def answered_rows(self, rows: Conversations) -> list[int]:
        """The numbers of the rows that are to be answered: evenly spaced, those that have an answer to compare with."""
        return [row for row in sorted(spaced(len(rows), count=self._generate_rows)) if rows.answers[row] is not None]

    def shown_rows(self, rows: Conversations) -> frozenset[int]:
        answered = self.answered_rows(rows)
        return frozenset(answered[place] for place in spaced(len(answered), count=self.config.samples))

    def take_before(
        self, rows: Conversations, *, predictions: Iterable[tuple[LlmOutputs, Sequence[int]]], source: str
    ) -> None:
        """Scores the model as it was before it was trained, as a baseline; comes before `run`.

        Args:
            rows: the split.
            predictions: as `run` takes them.
            source: what that model is, in words.
        """
        started = time.perf_counter()
        self.metric.reset()
        for outputs, _ in predictions:
            self.metric.update(outputs.losses)
            for row, answer in outputs.answers.items():
                self._scores(rows, row, answer)
                self._before[row] = answer.text
        self._baselines.append(
            Baseline(
                name="before training",
                method=source,
                metrics=self.metric.compute(),
                fitted_rows=0,
                seconds=time.perf_counter() - started,
            )
        )

    def score(self, rows: Conversations, *, outputs: LlmOutputs, numbers: Sequence[int]) -> Iterator[Record]:
        """Adds a batch to the metric and yields the records of its rows."""
        self.metric.update(outputs.losses)
        of_rows = outputs.losses.losses.split(list(outputs.losses.counts))
        for row, losses in zip(numbers, of_rows, strict=True):
            answer = outputs.answers.get(row)
            record: dict[str, Any] = {
                "row": row,
                "prompt": rows.prompts[row],
                "true": rows.answers[row],
                "predicted": None if answer is None else answer.text,
                "loss": round(float(losses.mean()), DIGITS) if len(losses) else None,
                "tokens": len(losses),
            }
            if answer is not None:
                scores = self._scores(rows, row, answer)
                record |= {"finish": answer.finish, **{name: round(value, DIGITS) for name, value in scores.items()}}
            if row in self._before:
                record["before"] = self._before[row]
            yield record

    def sample(self, record: Record) -> Sample | None:
        if record["predicted"] is None:
            return None  # its prompt couldn't be asked
        return Sample(
            row=record["row"],
            text=record["prompt"][-SAMPLE_CHARACTERS:],
            true=record["true"][:SAMPLE_CHARACTERS],
            predicted=record["predicted"][:SAMPLE_CHARACTERS],
            before=record["before"][:SAMPLE_CHARACTERS] if "before" in record else None,
        )

    def definitions(self) -> dict[str, str]:
        return dict(DEFINITIONS)

    def baselines(self, rows: Conversations) -> tuple[Baseline, ...]:
        counted = () if self._train is None else (unigram(self._train, test=rows),)
        return (*self._baselines, *counted)

    def _scores(self, rows: Conversations, row: int, answer: Answer) -> dict[str, float]:
        return self.metric.answers.add(
            answer.text, reference=rows.answers[row] or "", tokens=len(answer.tokens), ended=answer.ended
        )


def unigram(train: Conversations, *, test: Conversations) -> Baseline:
    """Every token is told by how common it is among the labelled tokens of the train rows, whatever is before it."""
    started = time.perf_counter()
    counts = torch.ones(test.vocabulary, dtype=torch.float64)  # one of each, so that none has probability 0
    for row in train.labels:
        counts += torch.bincount(torch.as_tensor(row, dtype=torch.long), minlength=test.vocabulary)
    losses = -(counts / counts.sum()).log()
    wanted = torch.zeros(test.vocabulary, dtype=torch.int64)
    for row in test.labels:
        wanted += torch.bincount(torch.as_tensor(row, dtype=torch.long), minlength=test.vocabulary)
    digits = sum(
        digits_of(losses[token : token + 1]) * count
        for token, count in zip(wanted.nonzero().flatten().tolist(), wanted[wanted > 0].tolist(), strict=True)
    )
    right, tokens = int(wanted[counts.argmax()]), int(wanted.sum())
    return Baseline(
        name="unigram",
        method=f"each token by its share of {int(counts.sum()) - test.vocabulary:,} learnt tokens of the train rows",
        metrics=of_tokens(right, tokens, digits=digits.tolist() if tokens else []),  # type: ignore[union-attr]
        fitted_rows=len(train),
        seconds=time.perf_counter() - started,
    )
