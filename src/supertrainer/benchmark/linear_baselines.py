"""What heads for several labels and for numbers must beat: what holds most often, and a bag of words."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from supertrainer.benchmark.baselines import (
    LEAST_PROBABILITY,
    MAX_CHARACTERS,
    MAX_FEATURES,
    MAX_ITERATIONS,
    SCORED_AT_ONCE,
    vectorizer_for,
)
from supertrainer.benchmark.results import Baseline
from supertrainer.benchmark.rows import LabelledTexts, as_one_text

Predictor = Callable[[Sequence[str]], np.ndarray]  # B texts -> logits (B, C), or numbers (B, 1)


def multi_label(
    train: LabelledTexts, *, test: LabelledTexts, metric: Any, seed: int, max_rows: int
) -> tuple[Baseline, ...]:
    """Each label as often as it is true, and a logistic regression for each.

    Args:
        train: rows to fit on.
        test: rows to score on.
        metric: of the task; it is reset before and after.
        seed: chooses the rows where there are more than `max_rows`.
        max_rows: the bag of words is fitted on at most so many rows.
    """
    labels = np.asarray(list(train.labels), dtype=np.float64)
    shares = (labels.sum(axis=0) + 1) / (len(labels) + 2)
    constant = np.log(shares) - np.log1p(-shares)
    often = [name for name, share in zip(metric.label_names, shares, strict=True) if share >= metric.threshold]
    floor = _scored(
        "majority",
        f"every row gets the labels that most train rows have: {', '.join(often) or 'none'}",
        lambda texts: np.tile(constant, (len(texts), 1)),
        test=test,
        metric=metric,
        fitted_rows=len(labels),
    )
    return floor, _bag_of_words(train, labels, _logistic, test=test, metric=metric, seed=seed, max_rows=max_rows)


def regression(
    train: LabelledTexts, *, test: LabelledTexts, metric: Any, seed: int, max_rows: int
) -> tuple[Baseline, ...]:
    """The mean of the train rows' numbers, and a ridge regression. Arguments as `multi_label`."""
    labels = np.asarray(list(train.labels), dtype=np.float64)
    mean = float(labels.mean())
    floor = _scored(
        "mean",
        f"always {mean:.4g}, the mean of the train rows",
        lambda texts: np.full((len(texts), 1), mean),
        test=test,
        metric=metric,
        fitted_rows=len(labels),
    )
    return floor, _bag_of_words(train, labels, _ridge, test=test, metric=metric, seed=seed, max_rows=max_rows)


def _bag_of_words(
    train: LabelledTexts,
    labels: np.ndarray,
    fit: Callable[[Any, np.ndarray], Callable[[Any], np.ndarray]],
    *,
    test: LabelledTexts,
    metric: Any,
    seed: int,
    max_rows: int,
) -> Baseline:
    started = time.perf_counter()
    fitted = np.arange(len(labels))
    if len(fitted) > max_rows:
        fitted = np.sort(np.random.default_rng(seed).choice(fitted, size=max_rows, replace=False))
    texts = [as_one_text(train.texts[int(row)])[:MAX_CHARACTERS] for row in fitted]
    vectorizer, features = vectorizer_for(texts)
    assert vectorizer is not None, "rows without text are refused when the data is read"
    predict = fit(vectorizer.fit_transform(texts), labels[fitted])
    model = "ridge regression" if fit is _ridge else "a logistic regression for each label"
    baseline = _scored(
        "bag of words",
        f"{model} on TF-IDF of {features}, at most {MAX_FEATURES:,}",
        lambda batch: predict(vectorizer.transform(batch)),
        test=test,
        metric=metric,
        fitted_rows=len(fitted),
    )
    return baseline.model_copy(update={"seconds": time.perf_counter() - started})


def _logistic(features: Any, labels: np.ndarray) -> Callable[[Any], np.ndarray]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    models: list[Any] = []
    for column in labels.T:
        model = LogisticRegression(C=10.0, max_iter=MAX_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the bound on iterations is part of the method
            models.append(model.fit(features, column > 0.5) if 0 < column.sum() < len(column) else bool(column.any()))

    def predict(batch: Any) -> np.ndarray:
        columns = [
            np.full(batch.shape[0], float(model)) if isinstance(model, bool) else model.predict_proba(batch)[:, 1]
            for model in models
        ]
        chances = np.clip(np.stack(columns, axis=1), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)
        logits: np.ndarray = np.log(chances) - np.log1p(-chances)
        return logits

    return predict


def _ridge(features: Any, labels: np.ndarray) -> Callable[[Any], np.ndarray]:
    from sklearn.linear_model import Ridge

    model = Ridge(alpha=1.0).fit(features, labels)
    return lambda batch: np.asarray(model.predict(batch)).reshape(-1, 1)


def _scored(
    name: str, method: str, predict: Predictor, *, test: LabelledTexts, metric: Any, fitted_rows: int
) -> Baseline:
    started = time.perf_counter()
    metric.reset()
    for start in range(0, len(test), SCORED_AT_ONCE):
        block = range(start, min(start + SCORED_AT_ONCE, len(test)))
        logits = predict([as_one_text(test.texts[row])[:MAX_CHARACTERS] for row in block])
        labels = torch.tensor([test.labels[row] for row in block], dtype=torch.float64)
        metric.update(torch.from_numpy(logits), labels)
    scores = metric.compute()
    metric.reset()
    seconds = time.perf_counter() - started
    return Baseline(name=name, method=method, metrics=scores, fitted_rows=fitted_rows, seconds=seconds)
