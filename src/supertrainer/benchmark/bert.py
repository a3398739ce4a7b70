"""The benchmark of sequence classification: one label a row, logits in, scores of each class and baselines out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from supertrainer.benchmark.base import Record, TaskBenchmark
from supertrainer.benchmark.baselines import score_baselines
from supertrainer.benchmark.results import Baseline, DataFacts, ModelFacts, Sample
from supertrainer.benchmark.rows import LabelledTexts, as_one_text
from supertrainer.benchmark.schema import BertBenchmarkConfig
from supertrainer.core.errors import SupertrainerError
from supertrainer.metrics.classification import IGNORED, ClassificationMetric
from supertrainer.metrics.scores import CLASSIFICATION_DEFINITIONS

SAMPLE_CHARACTERS = 500  # of a text that a report keeps


class BertBenchmark(TaskBenchmark[LabelledTexts, Tensor]):
    """Scores logits (B, C) of labelled texts. A record is {row, text, true, predicted, probabilities: {name: p}}."""

    def __init__(
        self,
        config: BertBenchmarkConfig,
        *,
        metric: ClassificationMetric,
        model: ModelFacts,
        data: DataFacts,
        train: LabelledTexts | None = None,
    ) -> None:
        """
        Args:
            config: the split, and how baselines are fitted.
            metric: takes the sums; its label names are the label set.
            model: which model makes the predictions, for the result.
            data: where the rows come from, for the result.
            train: rows to fit the baselines on; without them there is no baseline.
        """
        super().__init__(config, metric=metric, model=model, data=data)
        self._classification = metric
        self._baseline_rows = config.baseline_rows
        self._seed = config.seed
        self._train = train if config.baselines else None

    def score(self, rows: LabelledTexts, *, outputs: Tensor, numbers: Sequence[int]) -> Iterator[Record]:
        """Adds logits (B, C) to the metric and yields the records of their rows."""
        logits = outputs.detach().cpu()
        if len(logits) != len(numbers):
            raise SupertrainerError(f"a batch has {len(logits)} rows of logits for {len(numbers)} rows of the split.")
        labels = [int(rows.labels[number]) for number in numbers]
        self.metric.update(logits, torch.tensor(labels, dtype=torch.long))
        probabilities = logits.double().softmax(dim=1).tolist()  # (B, C)
        chosen = logits.argmax(dim=1).tolist()
        names = self._classification.label_names
        for number, label, row, best in zip(numbers, labels, probabilities, chosen, strict=True):
            yield {
                "row": number,
                "text": rows.texts[number],
                "true": None if label == IGNORED else names[label],
                "predicted": names[best],
                "probabilities": {name: round(value, 6) for name, value in zip(names, row, strict=True)},
            }

    def sample(self, record: Record) -> Sample:
        return Sample(
            row=record["row"],
            text=as_one_text(record["text"])[:SAMPLE_CHARACTERS],
            true=record["true"],
            predicted=record["predicted"],
            probability=record["probabilities"][record["predicted"]],
        )

    def definitions(self) -> dict[str, str]:
        return dict(CLASSIFICATION_DEFINITIONS)

    def details(self) -> dict[str, Any]:
        table, confusion = self._classification.table(), self._classification.confusion.tolist()
        return {"per_class": tuple(table), "confusion": tuple(map(tuple, confusion))}

    def baselines(self, rows: LabelledTexts) -> tuple[Baseline, ...]:
        if self._train is None:
            return ()
        return score_baselines(
            self._train,
            test=rows,
            label_names=self._classification.label_names,
            seed=self._seed,
            max_rows=self._baseline_rows,
        )
