"""Sequence classification: texts in, label, score and the probability of every label out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from supertrainer.core.errors import ConfigError
from supertrainer.data.collation import EncodedRows
from supertrainer.data.tokenization import encode_texts, resolve_max_length
from supertrainer.inference.base import TaskInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.reading import Row
from supertrainer.inference.schema import BertInferencerConfig

PROBABILITY_DIGITS = 6


@dataclass(frozen=True)
class Prediction:
    """A text's label, its probability, and that of every label in the order of their ids."""

    label: str
    score: float
    probabilities: dict[str, float]


class BertInferencer(TaskInferencer):
    """Predicts one label a row, or a pair of texts."""

    config: BertInferencerConfig

    def __init__(self, config: BertInferencerConfig, *, engine: HfEngine) -> None:
        """
        Args:
            config: file, columns, what is written.
            engine: runs the trained model.
        """
        super().__init__(config)
        self.engine = engine

    def text_columns(self) -> list[str]:
        columns = self.config.columns
        return [columns.text, *([columns.text_pair] if columns.text_pair is not None else [])]

    def added_columns(self) -> Mapping[str, type]:
        names = self.engine.trained.label_names if self.config.probabilities else ()
        return {"predicted": str, "score": float, **{f"probability_{name}": float for name in names}}

    def predict_rows(self, rows: Sequence[Row]) -> list[Row]:
        columns = self.config.columns
        pairs = None if columns.text_pair is None else [row[columns.text_pair] for row in rows]
        return [
            self._as_row(prediction) for prediction in self.predict([row[columns.text] for row in rows], pairs=pairs)
        ]

    def predict(self, texts: Sequence[str], *, pairs: Sequence[str] | None = None) -> list[Prediction]:
        """Labels of texts, or of pairs of texts, in their order.

        Raises:
            ConfigError: a text is empty, or `max_length` is more than the model takes.
        """
        if not texts:
            return []
        if any(not text.strip() for text in texts):
            raise ConfigError("a text is empty.", fix="leave it out: there is nothing to tell a label from.")
        trained = self.engine.trained
        max_length = resolve_max_length(self.config.max_length, trained.tokenizer)
        rows = EncodedRows(encode_texts(texts, trained.tokenizer, max_length=max_length, pairs=pairs))
        logits = torch.zeros(len(texts), len(trained.label_names), dtype=torch.float64)
        for batch, numbers in self.engine.logits(rows):
            logits[numbers] = batch.double()
        return [self._prediction(row) for row in logits.softmax(dim=1).tolist()]

    def _prediction(self, probabilities: Sequence[float]) -> Prediction:
        names = self.engine.trained.label_names
        best = max(range(len(names)), key=probabilities.__getitem__)
        return Prediction(names[best], probabilities[best], dict(zip(names, probabilities, strict=True)))

    def _as_row(self, prediction: Prediction) -> Row:
        added: Row = {"predicted": prediction.label, "score": round(prediction.score, PROBABILITY_DIGITS)}
        if self.config.probabilities:
            for name, value in prediction.probabilities.items():
                added[f"probability_{name}"] = round(value, PROBABILITY_DIGITS)
        return added
