"""A tag a word: spans in IOB2, read strictly, and tags one by one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from supertrainer.core import iob2
from supertrainer.core.errors import ConfigError, DataError
from supertrainer.metrics.base import Metric
from supertrainer.metrics.exact import DIGIT_EXPONENTS, digits_of, mean_of, require_finite
from supertrainer.metrics.schema import SPAN_SCALARS, TokenMetricConfig
from supertrainer.metrics.scores import ClassScore, class_score


class TokenMetric(Metric[Tensor, Sequence[Tensor]]):
    """For each type of span, or each tag where they aren't those of spans: found and right, found and wrong, missed;
    words, words with the right tag, and the exact sum of cross-entropy over words.
    """

    def __init__(self, config: TokenMetricConfig, *, label_names: Sequence[str]) -> None:
        """
        Args:
            config: the main scalar and its direction.
            label_names: the tags in the order of their ids: a fixed set.

        Raises:
            ConfigError: `main` is of spans, and the tags aren't.
        """
        self.label_names = tuple(label_names)
        self.of_spans = iob2.is_iob2(self.label_names)
        if config.main in SPAN_SCALARS and not self.of_spans:
            strange = next(name for name in self.label_names if not iob2.is_iob2([name]))
            raise ConfigError(
                f"metric.main={config.main}: the tag {strange!r} is not O, B-TYPE or I-TYPE.",
                why="spans are read from tags in IOB2.",
                fix="write the tags so; or, for tags that mark no spans, metric.main=tag_macro_f1 or tag_accuracy.",
            )
        self.names = tuple(iob2.types_of(self.label_names)) if self.of_spans else self.label_names
        super().__init__(config, num_sums=3 * len(self.names) + 3 * len(self.label_names) + 2 + len(DIGIT_EXPONENTS))
        self._batches = 0

    def update(self, logits: Tensor, labels: Sequence[Tensor]) -> None:
        """Adds one batch.

        Args:
            logits: (L, C), of the labelled words, row after row.
            labels: of each row the tags of its words, (words of the row,).

        Raises:
            SupertrainerError: a logit is NaN or infinite.
            DataError: shapes that don't fit the tags.
        """
        self._batches += 1
        logits = logits.detach().cpu().double()
        sizes, true = [len(row) for row in labels], torch.cat(list(labels)).cpu()
        if tuple(logits.shape) != (len(true), len(self.label_names)):
            raise DataError(
                f"batch {self._batches}: logits {tuple(logits.shape)} don't fit {len(true)} words and "
                f"{len(self.label_names)} tags.",
                fix="give the model as many labels as the dataset has tags.",
            )
        require_finite(logits, batch=self._batches, what="word")
        found = logits.argmax(dim=1)
        tags = _tag_counts(found, true, size=len(self.label_names))
        first = self._span_counts(found.split(sizes), labels) if self.of_spans else tags
        facts = torch.tensor([int((found == true).sum()), len(true)])
        losses = F.cross_entropy(logits, true, reduction="none")
        self._sums += torch.cat([first, tags, facts, digits_of(losses)])

    def compute(self) -> dict[str, float]:
        """Loss and accuracy over words, macro F1 over tags, and precision, recall and F1 over spans.

        Raises:
            DataError: no word was counted.
        """
        right, words = self._facts[:2].tolist()
        if not words:
            raise DataError("no tagged word was evaluated, so there is no metric.", fix="evaluate a split with tags.")
        tags = self._scores(self.label_names, self._sums[3 * len(self.names) :])
        scores = {
            "loss": mean_of(self._facts[2:].tolist(), count=words),
            "tag_accuracy": right / words,
            "tag_macro_f1": sum(score.f1 for score in tags) / len(tags),
        }
        if self.of_spans:
            table = self.table()
            together = class_score("all", *self._sums[: 3 * len(self.names)].reshape(3, -1).sum(dim=1).tolist())
            macro = sum(score.f1 for score in table) / max(len(table), 1)
            scores |= {"precision": together.precision, "recall": together.recall, "f1": together.f1, "macro_f1": macro}
        return scores

    def table(self) -> list[ClassScore]:
        """The scores of each type of span, or of each tag."""
        return self._scores(self.names, self._sums)

    @property
    def _facts(self) -> Tensor:
        return self._sums[3 * len(self.names) + 3 * len(self.label_names) :]

    def _scores(self, names: Sequence[str], sums: Tensor) -> list[ClassScore]:
        columns = sums[: 3 * len(names)].reshape(3, -1).T.tolist()
        return [class_score(name, *counts) for name, counts in zip(names, columns, strict=True)]

    def _span_counts(self, found: Sequence[Tensor], labels: Sequence[Tensor]) -> Tensor:
        counts = torch.zeros(3, len(self.names), dtype=torch.int64)
        for predicted, true in zip(found, labels, strict=True):
            given, wanted = set(self.spans(predicted.tolist())), set(self.spans(true.tolist()))
            for place, spans in enumerate((given & wanted, given - wanted, wanted - given)):
                for name, _, _ in spans:
                    counts[place, self.names.index(name)] += 1
        return counts.flatten()

    def spans(self, ids: Sequence[int]) -> list[iob2.Span]:
        """The spans of a row's tags."""
        return iob2.spans([self.label_names[place] for place in ids])


def _tag_counts(found: Tensor, true: Tensor, *, size: int) -> Tensor:
    right = torch.bincount(true[found == true], minlength=size)
    return torch.cat(
        [right, torch.bincount(found, minlength=size) - right, torch.bincount(true, minlength=size) - right]
    )
