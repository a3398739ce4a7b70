"""The benchmark of encoders: outputs of a head in, scores and baselines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from supertrainer.benchmark import baselines, linear_baselines, records, word_baselines
from supertrainer.benchmark.base import Record, TaskBenchmark
from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Sample
from supertrainer.benchmark.rows import LabelledTexts
from supertrainer.benchmark.schema import BertBenchmarkConfig
from supertrainer.config.tasks import DEFAULT_TASK, Task
from supertrainer.metrics import scores
from supertrainer.metrics.base import Metric


class BertBenchmark(TaskBenchmark[LabelledTexts, Tensor]):
    """Scores the logits of labelled texts. A record is {row, text, true, predicted, …}, made by `benchmark.records`."""

    metric: Any

    def __init__(
        self,
        config: BertBenchmarkConfig,
        *,
        metric: Metric[Any, Any],
        model: ModelFacts,
        data: DataFacts,
        train: LabelledTexts | None = None,
        task: Task = DEFAULT_TASK,
    ) -> None:
        """
        Args:
            config: the split, and how baselines are fitted.
            metric: takes the sums; its label names are the label set.
            model: which model makes the predictions, for the result.
            data: where the rows come from, for the result.
            train: rows to fit the baselines on; without them there is no baseline.
            task: what the head is for.
        """
        super().__init__(config, metric=metric, model=model, data=data)
        self.task: Task = task
        self._baseline_rows = config.baseline_rows
        self._seed = config.seed
        self._train = train if config.baselines else None

    def score(self, rows: LabelledTexts, *, outputs: Tensor, numbers: Sequence[int]) -> Iterator[Record]:
        """Adds logits to the metric and yields the records of their rows."""
        logits = outputs.detach().cpu()
        labels = [rows.labels[number] for number in numbers]
        self.metric.update(logits, records.as_references(self.task, labels, logits=logits))
        texts = [rows.texts[number] for number in numbers]
        names = self.metric.label_names if self.task != "masked_lm" else rows.names
        made = records.make(self.task, logits, labels=labels, texts=texts, names=names, metric=self.metric)
        for number, record in zip(numbers, made, strict=True):
            yield {"row": number, **record}

    def sample(self, record: Record) -> Sample:
        return records.sample(self.task, record)

    def definitions(self) -> dict[str, str]:
        match self.task:
            case "multi_label":
                return dict(scores.MULTI_LABEL_DEFINITIONS)
            case "regression":
                return dict(scores.REGRESSION_DEFINITIONS)
            case "token_classification":
                return scores.TOKEN_DEFINITIONS | (scores.SPAN_DEFINITIONS if self.metric.of_spans else {})
            case "masked_lm":
                return dict(scores.MASKED_LM_DEFINITIONS)
            case _:
                return dict(scores.CLASSIFICATION_DEFINITIONS)

    def details(self) -> dict[str, Any]:
        if self.task in ("regression", "masked_lm"):
            return {}
        table = {"per_class": tuple(self.metric.table())}
        if self.task == "sequence_classification":
            table["confusion"] = tuple(map(tuple, self.metric.confusion.tolist()))
        return table

    def baselines(self, rows: LabelledTexts) -> tuple[Baseline, ...]:
        if self._train is None:
            return ()
        fitting = {"seed": self._seed, "max_rows": self._baseline_rows}
        match self.task:
            case "multi_label":
                return linear_baselines.multi_label(self._train, test=rows, metric=self.metric, **fitting)
            case "regression":
                return linear_baselines.regression(self._train, test=rows, metric=self.metric, **fitting)
            case "token_classification":
                return word_baselines.commonest_tag(self._train, test=rows, metric=self.metric)
            case "masked_lm":
                return word_baselines.unigram(self._train, test=rows, metric=self.metric, vocabulary=len(rows.names))
            case _:
                return baselines.score_baselines(self._train, test=rows, label_names=self.metric.label_names, **fitting)
