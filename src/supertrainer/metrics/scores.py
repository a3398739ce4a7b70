"""The numbers that a metric gives and what each of them means. No torch: reports are read back without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class; `support` is its number of rows."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


CLASSIFICATION_DEFINITIONS = {
    "loss": "mean over rows of the cross-entropy in nats, summed exactly from fp64 terms",
    "accuracy": "rows predicted right / rows",
    "macro_precision": "unweighted mean over all classes of precision; a class never predicted counts 0",
    "macro_recall": "unweighted mean over all classes of recall; a class without rows counts 0",
    "macro_f1": "unweighted mean over all classes of F1; a class neither present nor predicted counts 0",
    "weighted_precision": "mean over classes of precision, weighted by rows of the class",
    "weighted_recall": "mean over classes of recall, weighted by rows of the class (equals accuracy)",
    "weighted_f1": "mean over classes of F1, weighted by rows of the class",
}
"""Each scalar of the classification metric: scikit-learn's with `labels=range(C), zero_division=0`."""
