"""What is written of every scored row: its text, what was true, what was predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from supertrainer.benchmark.base import Record
from supertrainer.benchmark.results import Sample
from supertrainer.benchmark.rows import Text, as_one_text
from supertrainer.config.tasks import Task
from supertrainer.core.errors import SupertrainerError
from supertrainer.core.iob2 import Span
from supertrainer.metrics.classification import IGNORED
from supertrainer.metrics.multi_label import applies

SAMPLE_CHARACTERS = 500  # of a text that a report keeps
DIGITS = 6


def as_references(task: Task, labels: Sequence[Any], *, logits: Tensor) -> Any:
    """The labels of a batch as the task's metric takes them.

    Raises:
        SupertrainerError: the batch has logits of another number of rows.
    """
    if task in ("token_classification", "masked_lm"):
        references = [torch.tensor(row, dtype=torch.long) for row in labels]
        count = sum(map(len, references))
    else:
        references = torch.tensor(labels, dtype=torch.long if task == "sequence_classification" else torch.float64)
        count = len(labels)
    if len(logits) != count:
        raise SupertrainerError(f"a batch has {len(logits)} rows of logits for {count} rows of the split.")
    return references


def make(
    task: Task, logits: Tensor, *, labels: Sequence[Any], texts: Sequence[Text], names: Sequence[str], metric: Any
) -> Iterator[Record]:
    """The records of a batch, without the numbers of its rows.

    Args:
        logits: (B, C), or of tokens (L, C), row after row.
        names: of the label set, or of all tokens.
        metric: of the task: it knows thresholds and spans.
    """
    match task:
        case "multi_label":
            return _multi_label(logits, labels, texts, names, threshold=metric.threshold)
        case "regression":
            return _numbers(logits, labels, texts)
        case "token_classification":
            return _tags(logits, labels, texts, metric=metric)
        case "masked_lm":
            return _masked(logits, labels, texts, names)
        case _:
            return _single_label(logits, labels, texts, names)


def sample(task: Task, record: Record) -> Sample:
    """A record as a report shows it."""
    text = as_one_text(record["text"])
    shown: dict[str, Any] = {"row": record["row"], "text": text[:SAMPLE_CHARACTERS]}
    true, predicted = record["true"], record["predicted"]
    match task:
        case "multi_label":
            return Sample(**shown, true=", ".join(true) or "none", predicted=", ".join(predicted) or "none")
        case "regression":
            error = abs(true - predicted)
            return Sample(**shown, true=f"{true:.4g}", predicted=f"{predicted:.4g}", error=error)
        case "token_classification" if "words" in record:
            shown["text"] = " ".join(record["words"])[:SAMPLE_CHARACTERS]
            return Sample(**shown, true=_spans_text(true), predicted=_spans_text(predicted))
        case "masked_lm":
            return Sample(**shown, true=" ".join(true), predicted=" ".join(predicted))
        case _:
            return Sample(**shown, true=true, predicted=predicted, probability=record["probabilities"][predicted])


def _single_label(
    logits: Tensor, labels: Sequence[int], texts: Sequence[Text], names: Sequence[str]
) -> Iterator[Record]:
    probabilities, chosen = logits.double().softmax(dim=1).tolist(), logits.argmax(dim=1).tolist()
    for text, label, row, best in zip(texts, labels, probabilities, chosen, strict=True):
        yield {
            "text": text,
            "true": None if label == IGNORED else names[label],
            "predicted": names[best],
            "probabilities": {name: round(value, DIGITS) for name, value in zip(names, row, strict=True)},
        }


def _multi_label(
    logits: Tensor, labels: Sequence[Any], texts: Sequence[Text], names: Sequence[str], *, threshold: float
) -> Iterator[Record]:
    probabilities, given = logits.double().sigmoid().tolist(), applies(logits, threshold=threshold).tolist()
    for text, label, row, chosen in zip(texts, labels, probabilities, given, strict=True):
        yield {
            "text": text,
            "true": [name for name, value in zip(names, label, strict=True) if value > 0.5],
            "predicted": [name for name, value in zip(names, chosen, strict=True) if value],
            "probabilities": {name: round(value, DIGITS) for name, value in zip(names, row, strict=True)},
        }


def _numbers(logits: Tensor, labels: Sequence[float], texts: Sequence[Text]) -> Iterator[Record]:
    for text, label, value in zip(texts, labels, logits.flatten().tolist(), strict=True):
        yield {"text": text, "true": label, "predicted": round(value, DIGITS)}


def _tags(logits: Tensor, labels: Sequence[Any], texts: Sequence[Text], *, metric: Any) -> Iterator[Record]:
    """Spans where the tags mark them, else the tags."""
    names = metric.label_names
    for words, true, row in zip(texts, labels, logits.argmax(dim=1).split([len(row) for row in labels]), strict=True):
        record: dict[str, Any] = {"text": " ".join(words), "words": list(words)}
        if metric.of_spans:
            found, wanted = metric.spans(row.tolist()), metric.spans(true)
            yield record | {"true": _spans(wanted, words), "predicted": _spans(found, words)}
        else:
            yield record | {"true": [names[tag] for tag in true], "predicted": [names[tag] for tag in row.tolist()]}


def _spans(spans: Sequence[Span], words: Text) -> list[dict[str, Any]]:
    return [
        {"type": name, "start": start, "end": end, "text": " ".join(words[start:end])} for name, start, end in spans
    ]


def _spans_text(spans: Sequence[Any]) -> str:
    """Spans as `TYPE text`, tags as they are."""
    parts = [span if isinstance(span, str) else f"{span['type']} {span['text']}" for span in spans]
    return "; ".join(parts) or "none"


def _masked(logits: Tensor, labels: Sequence[Any], texts: Sequence[Text], names: Sequence[str]) -> Iterator[Record]:
    chosen = logits.argmax(dim=1).split([len(row) for row in labels])
    for text, true, row in zip(texts, labels, chosen, strict=True):
        yield {"text": text, "true": [names[i] for i in true], "predicted": [names[i] for i in row.tolist()]}
