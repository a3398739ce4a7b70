"""What a classifier must beat: always the commonest class, and a linear model on bag-of-words features.

Both are fitted on the training rows, scored on the rows of the model and by the same metric. They take seconds.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from supertrainer.benchmark.results import Baseline
from supertrainer.benchmark.rows import LabelledTexts, as_one_text
from supertrainer.core.errors import DataError
from supertrainer.metrics.classification import IGNORED, ClassificationMetric
from supertrainer.metrics.schema import ClassificationMetricConfig

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

MAX_ROWS = 20_000
MAX_FEATURES = 50_000
MAX_CHARACTERS = 10_000  # of a text that are read
MAX_ITERATIONS = 100
SCORED_AT_ONCE = 2_000  # rows: bounds the feature matrix of a large test split
LEAST_PROBABILITY = 1e-9  # of a class that the training rows lack: keeps the loss finite

# Thai, Lao, Tibetan, Burmese, Khmer, kana, and Chinese characters: words are written without spaces between them
UNSPACED = re.compile(
    r"[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)

WORD = re.compile(r"\b\w\w+\b")

Predictor = Callable[[Sequence[str]], np.ndarray]  # B texts -> natural-log probabilities (B, C), the baseline's logits


def score_baselines(
    train: LabelledTexts, *, test: LabelledTexts, label_names: Sequence[str], seed: int = 42, max_rows: int = MAX_ROWS
) -> tuple[Baseline, ...]:
    """Fits the majority class and the bag of words on `train` and scores them on `test`.

    Args:
        train: rows to fit on; rows labelled -100 are left out.
        test: rows to score on, any number of them.
        label_names: the classes in the order of their ids.
        seed: chooses the rows where there are more than `max_rows`.
        max_rows: the bag of words is fitted on at most so many rows.

    Raises:
        DataError: no training row has a label.
    """
    labels = np.asarray(list(train.labels), dtype=np.int64)
    usable = np.flatnonzero(labels != IGNORED)
    if not len(usable):
        raise DataError(f"none of {len(labels)} training rows has a label, so no baseline can be fitted.")
    fitted = usable
    if len(usable) > max_rows:
        fitted = np.sort(np.random.default_rng(seed).choice(usable, size=max_rows, replace=False))
    texts = [as_one_text(train.texts[int(row)])[:MAX_CHARACTERS] for row in fitted]

    started = time.perf_counter()
    majority = _majority(labels[usable], num_labels=len(label_names))
    commonest = label_names[int(majority([""])[0].argmax())]
    floor = Baseline(
        name="majority class",
        method=f"always {commonest!r}, the commonest class of the training rows",
        metrics=_scores(majority, rows=test, label_names=label_names),
        fitted_rows=len(usable),
        seconds=time.perf_counter() - started,
    )
    started = time.perf_counter()
    predictor, method = _bag_of_words(texts, labels=labels[fitted], num_labels=len(label_names))
    linear = Baseline(
        name="bag of words",
        method=method,
        metrics=_scores(predictor, rows=test, label_names=label_names) if predictor else floor.metrics,
        fitted_rows=len(fitted),
        seconds=time.perf_counter() - started,
    )
    return floor, linear


def _scores(predictor: Predictor, *, rows: LabelledTexts, label_names: Sequence[str]) -> dict[str, float]:
    target = f"{ClassificationMetric.__module__}.{ClassificationMetric.__qualname__}"
    metric = ClassificationMetric(ClassificationMetricConfig(target=target), label_names=label_names)
    for start in range(0, len(rows), SCORED_AT_ONCE):
        block = range(start, min(start + SCORED_AT_ONCE, len(rows)))
        logits = predictor([as_one_text(rows.texts[row])[:MAX_CHARACTERS] for row in block])
        metric.update(torch.from_numpy(logits), torch.tensor([rows.labels[row] for row in block]))
    return metric.compute()


def _majority(labels: np.ndarray, *, num_labels: int) -> Predictor:
    """The classes' shares of the training rows, one row added to each so that none has probability 0."""
    counts = np.bincount(labels, minlength=num_labels) + 1.0
    log_shares = np.log(counts / counts.sum())
    return lambda texts: np.tile(log_shares, (len(texts), 1))


def _bag_of_words(texts: list[str], *, labels: np.ndarray, num_labels: int) -> tuple[Predictor | None, str]:
    """The fitted predictor and how it was made; no predictor where nothing can be learnt but the majority class."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    present = np.unique(labels)
    if len(present) == 1:
        return None, "the majority class: the training rows have one class only"
    vectorizer, features = vectorizer_for(texts)
    if vectorizer is None:
        return None, "the majority class: the training texts have no characters"
    model = LogisticRegression(C=10.0, max_iter=MAX_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the bound on iterations is part of the method
        model.fit(vectorizer.fit_transform(texts), labels)

    def predict(batch: Sequence[str]) -> np.ndarray:
        probabilities = np.full((len(batch), num_labels), LEAST_PROBABILITY)
        probabilities[:, present] = np.maximum(model.predict_proba(vectorizer.transform(batch)), LEAST_PROBABILITY)
        logits: np.ndarray = np.log(probabilities)
        return logits

    return predict, f"logistic regression on TF-IDF of {features}, at most {MAX_FEATURES:,}"


def vectorizer_for(texts: list[str]) -> tuple[TfidfVectorizer | None, str]:
    """For word 1-2-grams; where no spaces tell words apart, or none has two letters, for character 1-3-grams."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    shared = {"max_features": MAX_FEATURES, "sublinear_tf": True}
    if any(WORD.search(text) for text in texts) and not _is_unspaced(texts):
        return TfidfVectorizer(ngram_range=(1, 2), token_pattern=WORD.pattern, **shared), "word 1-2-grams"
    if any(text.strip() for text in texts):
        return TfidfVectorizer(ngram_range=(1, 3), analyzer="char", **shared), "character 1-3-grams"
    return None, ""


def _is_unspaced(texts: Iterable[str], *, sample: int = 1_000) -> bool:
    letters = [character for text in list(texts)[:sample] for character in text[:500] if character.isalpha()]
    return sum(UNSPACED.match(letter) is not None for letter in letters) > 0.3 * len(letters)
