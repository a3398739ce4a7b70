"""The benchmark of vision-language models: generated answers in, scores overall and by type of question out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from supertrainer.benchmark.answer_baselines import Guesses, without_pictures
from supertrainer.benchmark.base import Record, TaskBenchmark, spaced
from supertrainer.benchmark.mllm_scores import DEFINITIONS, SHORT, MllmScores, ShortSums
from supertrainer.benchmark.records import SAMPLE_CHARACTERS
from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Sample, TypeScore
from supertrainer.benchmark.rows import PictureQuestions
from supertrainer.benchmark.schema import MllmBenchmarkConfig
from supertrainer.config.tasks import Task
from supertrainer.inference.generation import Answer
from supertrainer.metrics.base import Metric

DIGITS = 6
BLANK = "blank picture"


class MllmBenchmark(TaskBenchmark[PictureQuestions, Sequence[Answer]]):
    """Scores generated answers to questions about pictures, beside what is answered without seeing them.

    A record is {row, prompt, pictures, question_type, true, predicted, finish, new_tokens} and the answer's scores;
    where several people answered, `references` too.
    """

    metric: MllmScores

    def __init__(
        self,
        config: MllmBenchmarkConfig,
        *,
        metric: Metric[Any, Any],
        model: ModelFacts,
        data: DataFacts,
        train: PictureQuestions | None = None,
        task: Task = "image_text_to_text",
    ) -> None:
        """
        Args:
            config: the split, how many rows, and what is shown.
            metric: of the task's training; answers have scores of their own.
            model: which model answers, for the result.
            data: where the rows come from, for the result.
            train: rows for the baselines that see no picture; without them there is none.
            task: there is only one.
        """
        super().__init__(config, metric=MllmScores(), model=model, data=data)
        self._train = train if config.baselines else None
        self._baselines: list[Baseline] = []
        self._by_type: dict[str, dict[str, float]] = {}  # of a baseline: type -> accuracy

    def shown_rows(self, rows: PictureQuestions) -> frozenset[int]:
        return frozenset(rows.numbers[place] for place in spaced(len(rows), count=self.config.samples))

    def take_without_pictures(self, rows: PictureQuestions) -> None:
        """Scores what can be answered from the train rows alone, where the config wants it; comes before `run`."""
        if self._train is not None and len(self._train):
            for guesses in without_pictures(self._train, test=rows):
                self._take(rows, guesses)

    def take_blank(self, rows: PictureQuestions, *, answers: Sequence[str], seconds: float) -> None:
        """Scores what the model answers to grey pictures, as a baseline; comes before `run`.

        Args:
            rows: the split.
            answers: one a row.
            seconds: that they took.
        """
        method = "this model, with a plain grey picture of the same size in place of each"
        self._take(rows, Guesses(BLANK, method, answers, 0, seconds))

    def score(self, rows: PictureQuestions, *, outputs: Sequence[Answer], numbers: Sequence[int]) -> Iterator[Record]:
        """Adds answers to the metric and yields the records of their rows."""
        for place, answer in zip(numbers, outputs, strict=True):
            references, kind = rows.references[place], rows.types[place]
            scores = self.metric.add(answer, references=references, kind=kind)
            yield {
                "row": rows.numbers[place],
                "prompt": rows.questions[place],
                "pictures": list(rows.pictures[place]),
                "question_type": kind or None,
                "true": references[0],
                **({"references": list(references)} if len(references) > 1 else {}),
                "predicted": answer.text.strip(),
                "finish": answer.finish,
                "new_tokens": len(answer.tokens),
                **{name: round(value, DIGITS) for name, value in scores.items()},
            }

    def sample(self, record: Record) -> Sample:
        return Sample(
            row=record["row"],
            text=record["prompt"][-SAMPLE_CHARACTERS:],
            true=record["true"][:SAMPLE_CHARACTERS],
            predicted=record["predicted"][:SAMPLE_CHARACTERS],
        )

    def definitions(self) -> dict[str, str]:
        return dict(DEFINITIONS)

    def baselines(self, rows: PictureQuestions) -> tuple[Baseline, ...]:
        return self._sorted()

    def details(self) -> dict[str, Any]:
        counts = self.metric.short.counts
        found = self.metric.short.by_type()
        return {
            "per_type": tuple(
                TypeScore(
                    name=kind,
                    rows=counts[kind],
                    metrics=scores,
                    baselines={baseline.name: self._by_type[baseline.name][kind] for baseline in self._sorted()},
                )
                for kind, scores in found.items()
            )
        }

    def _sorted(self) -> tuple[Baseline, ...]:
        """What sees least first."""
        return tuple(sorted(self._baselines, key=lambda one: one.name == BLANK))

    def _take(self, rows: PictureQuestions, guesses: Guesses) -> None:
        started, sums = time.perf_counter(), ShortSums()
        for place, answer in enumerate(guesses.answers):
            sums.add(answer, references=rows.references[place], kind=rows.types[place])
        self._by_type[guesses.name] = {kind: scores["accuracy"] for kind, scores in sums.by_type().items()}
        self._baselines.append(
            Baseline(
                name=guesses.name,
                method=guesses.method,
                metrics={name: sums.compute()[name] for name in SHORT},
                fitted_rows=guesses.fitted_rows,
                seconds=guesses.seconds + time.perf_counter() - started,
            )
        )
