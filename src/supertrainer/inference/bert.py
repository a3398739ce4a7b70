"""Encoders with a head: texts in; a label, labels, a number or spans out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from supertrainer.core import iob2
from supertrainer.core.errors import ConfigError
from supertrainer.data.collation import EncodedRows
from supertrainer.data.tokenization import encode_texts, encode_windows, resolve_max_length
from supertrainer.inference.base import TaskInferencer
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.reading import Row
from supertrainer.inference.schema import BertInferencerConfig
from supertrainer.inference.tagging import split_words, tag_rows
from supertrainer.models.saving import TrainedModel

PROBABILITY_DIGITS = 6
DEFAULT_THRESHOLD = 0.5
DEFAULT_OVERLAP = 32


@dataclass(frozen=True)
class Prediction:
    """A text's label, its probability, and that of every label in the order of their ids."""

    label: str
    score: float
    probabilities: dict[str, float]


class BertInferencer(TaskInferencer):
    """Predicts what the model's head is for, for rows of a text or a pair of texts."""

    config: BertInferencerConfig

    def __init__(self, config: BertInferencerConfig, *, engine: HfEngine) -> None:
        """
        Args:
            config: file, columns, what is written.
            engine: runs the trained model.

        Raises:
            ConfigError: when a row is predicted, for a masked language model: it has nothing to say of a text.
        """
        super().__init__(config)
        self.engine = engine

    @property
    def _trained(self) -> TrainedModel:
        trained = self.engine.trained
        if trained.task == "masked_lm":
            raise ConfigError(
                "operation=infer with a masked language model, which has no label for a text.",
                why="it was trained to tell masked words, so that a classifier can start from it.",
                fix="+experiment=train_bert model=bert/hub model.source=<this model> trains one.",
            )
        return trained

    def text_columns(self) -> list[str]:
        columns = self.config.columns
        return [columns.text, *([columns.text_pair] if columns.text_pair is not None else [])]

    def is_text(self, value: Any) -> bool:
        words = isinstance(value, list) and all(isinstance(word, str) for word in value)
        return isinstance(value, str) or (words and self._trained.task == "token_classification")

    def added_columns(self) -> Mapping[str, type]:
        trained = self._trained
        probabilities = {f"probability_{name}": float for name in trained.label_names if self.config.probabilities}
        match trained.task:
            case "multi_label":
                return {"predicted": list, **probabilities}
            case "regression":
                return {"predicted": float}
            case "token_classification":
                return {"entities": dict} if iob2.is_iob2(trained.label_names) else {"words": list, "tags": list}
            case _:
                return {"predicted": str, "score": float, **probabilities}

    def predict_rows(self, rows: Sequence[Row]) -> list[Row]:
        trained, columns = self._trained, self.config.columns
        texts = [row[columns.text] for row in rows]
        if trained.task == "token_classification":
            words = [split_words(text, how=self.config.words) for text in texts]
            return tag_rows(self.engine, texts, words, max_length=self._max_length(trained))
        pairs = None if columns.text_pair is None else [row[columns.text_pair] for row in rows]
        logits = self._logits(texts, pairs)
        match trained.task:
            case "multi_label":
                return [self._labels(row) for row in logits.sigmoid().tolist()]
            case "regression":
                return [{"predicted": round(value, PROBABILITY_DIGITS)} for value in logits.flatten().tolist()]
            case _:
                return [self._as_row(self._prediction(row)) for row in logits.softmax(dim=1).tolist()]

    def predict(self, texts: Sequence[str], *, pairs: Sequence[str] | None = None) -> list[Prediction]:
        """Labels of texts, or of pairs of texts, in their order, by a model with one label a text.

        Raises:
            ConfigError: a text is empty, or `max_length` is more than the model takes.
        """
        if not texts:
            return []
        if any(not text.strip() for text in texts):
            raise ConfigError("a text is empty.", fix="leave it out: there is nothing to tell a label from.")
        return [self._prediction(row) for row in self._logits(texts, pairs).softmax(dim=1).tolist()]

    def _logits(self, texts: Sequence[str], pairs: Sequence[str] | None) -> Tensor:
        """(B, C) float64, in the order of the texts."""
        trained = self._trained
        max_length, how = self._max_length(trained), self._long_texts(trained)
        if how["long_texts"] == "stride":
            if pairs is not None:
                raise ConfigError(
                    "inferencer.long_texts=stride with pairs of texts.",
                    why="windows go over one text.",
                    fix="inferencer.long_texts=truncate.",
                )
            encoded = encode_windows(texts, trained.tokenizer, max_length=max_length, overlap=how["overlap"])
        else:
            encoded = encode_texts(texts, trained.tokenizer, max_length=max_length, pairs=pairs)
        logits = torch.zeros(len(texts), len(trained.label_names), dtype=torch.float64)
        for batch, numbers in self.engine.logits(EncodedRows(encoded, pooling=how["pooling"])):
            logits[numbers] = batch.double()
        return logits

    def _max_length(self, trained: TrainedModel) -> int:
        return resolve_max_length(self.config.max_length, trained.tokenizer)

    def _long_texts(self, trained: TrainedModel) -> dict[str, Any]:
        """What is done about long texts: as the config says, else as the model was trained."""
        default = {"long_texts": "truncate", "overlap": DEFAULT_OVERLAP, "pooling": "mean"}
        given = {key: value for key in default if (value := vars(self.config)[key]) is not None}
        return default | {key: value for key, value in trained.noted.items() if key in default} | given

    def _labels(self, probabilities: Sequence[float]) -> Row:
        trained = self._trained
        threshold = self.config.threshold or trained.noted.get("threshold", DEFAULT_THRESHOLD)
        named = dict(zip(trained.label_names, probabilities, strict=True))
        return {"predicted": [name for name, value in named.items() if value >= threshold], **self._columns(named)}

    def _prediction(self, probabilities: Sequence[float]) -> Prediction:
        names = self._trained.label_names
        best = max(range(len(names)), key=probabilities.__getitem__)
        return Prediction(names[best], probabilities[best], dict(zip(names, probabilities, strict=True)))

    def _as_row(self, prediction: Prediction) -> Row:
        score = round(prediction.score, PROBABILITY_DIGITS)
        return {"predicted": prediction.label, "score": score, **self._columns(prediction.probabilities)}

    def _columns(self, probabilities: Mapping[str, float]) -> Row:
        if not self.config.probabilities:
            return {}
        return {f"probability_{name}": round(value, PROBABILITY_DIGITS) for name, value in probabilities.items()}
