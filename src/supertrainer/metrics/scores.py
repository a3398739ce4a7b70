"""The numbers that a metric gives and what each of them means. No torch: reports are read back without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClassScore:
    """The scores of one class, label or type of span; `support` is how often it is true."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


def class_score(name: str, right: int, wrong: int, missed: int) -> ClassScore:
    """Scores from counts; what isn't defined, since nothing was found or is there, is 0."""
    precision, recall = _share(right, right + wrong), _share(right, right + missed)
    return ClassScore(name, precision, recall, _share(2 * right, 2 * right + wrong + missed), right + missed)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


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

MULTI_LABEL_DEFINITIONS = {
    "loss": "mean over rows and labels of the binary cross-entropy in nats, summed exactly from fp64 terms",
    "subset_accuracy": "rows that are right in every label / rows",
    "hamming_loss": "labels that are wrong / (rows × labels)",
    "micro_precision": "labels given rightly / labels given, over all rows",
    "micro_recall": "labels given rightly / labels that are true, over all rows",
    "micro_f1": "2 × labels given rightly / (labels given + labels that are true), over all rows",
    "macro_precision": "unweighted mean over all labels of precision; a label never given counts 0",
    "macro_recall": "unweighted mean over all labels of recall; a label that no row has counts 0",
    "macro_f1": "unweighted mean over all labels of F1; a label neither true nor given counts 0",
}

REGRESSION_DEFINITIONS = {
    "mse": "mean over rows of the squared error",
    "rmse": "root of the mean squared error",
    "mae": "mean over rows of the absolute error",
    "r2": "1 - squared errors / squared distances of the true numbers from their mean; 0 where those are all 0",
    "pearson": "Pearson's correlation of predicted and true numbers; 0 where either are all the same",
    "spearman": "Pearson's correlation of their ranks; equal numbers share the mean of their ranks",
}

SPAN_DEFINITIONS = {
    "precision": "spans found with the right type, beginning and end / spans found; strict IOB2: an I- begins no span",
    "recall": "spans found with the right type, beginning and end / spans that are true",
    "f1": "2 × spans found right / (spans found + spans that are true)",
    "macro_f1": "unweighted mean over all types of F1 of spans; a type neither true nor found counts 0",
}
TOKEN_DEFINITIONS = {
    "loss": "mean over words of the cross-entropy in nats at their first sub-word, summed exactly from fp64 terms",
    "tag_accuracy": "words with the right tag / words",
    "tag_macro_f1": "unweighted mean over all tags of F1 over words; a tag neither true nor given counts 0",
}

MASKED_LM_DEFINITIONS = {
    "loss": "mean over masked tokens of the cross-entropy in nats; the masks are the same at every evaluation",
    "perplexity": "e to the power of the loss",
    "accuracy": "masked tokens told right / masked tokens",
}
