"""What a tagger and a masked language model must beat: the commonest tag of each word, and the commonest tokens."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import Any

import torch

from supertrainer.benchmark.results import Baseline
from supertrainer.benchmark.rows import LabelledTexts

TOKENS_AT_ONCE = 500  # bounds tokens × vocabulary


def commonest_tag(train: LabelledTexts, *, test: LabelledTexts, metric: Any) -> tuple[Baseline, ...]:
    """Every word gets the tag that it has most often among the train rows, an unknown one the commonest of all.

    Args:
        train: rows of words with the ids of their tags.
        test: rows to score on.
        metric: of the task; it is reset before and after.
    """
    started = time.perf_counter()
    size = len(metric.label_names)
    by_word: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in zip(train.texts, train.labels, strict=True):
        for word, tag in zip(words, tags, strict=True):
            by_word[word][tag] += 1
    total: Counter[int] = sum(by_word.values(), Counter())
    # A share of the commonest tags in all keeps the loss finite, and is all there is for unknown words.
    shares = torch.tensor([total[tag] + 1.0 for tag in range(size)], dtype=torch.float64)
    shares /= shares.sum()
    rows = {
        word: torch.tensor([float(counts[tag]) for tag in range(size)], dtype=torch.float64) + shares
        for word, counts in by_word.items()
    }
    metric.reset()
    for words, tags in zip(test.texts, test.labels, strict=True):
        if len(tags):
            weights = torch.stack([rows.get(word, shares) for word in words])
            logits = (weights / weights.sum(dim=1, keepdim=True)).log()
            metric.update(logits, [torch.tensor(tags, dtype=torch.long)])
    scores = metric.compute()
    metric.reset()
    method = (
        f"the tag that a word has most often among the train rows ({len(rows):,} words), else {_name(metric, total)}"
    )
    return (
        Baseline(name="tag by word", method=method, metrics=scores, fitted_rows=len(train), seconds=_since(started)),
    )


def unigram(train: LabelledTexts, *, test: LabelledTexts, metric: Any, vocabulary: int) -> tuple[Baseline, ...]:
    """Every masked token is told by how common tokens are among the train rows, whatever stands around it.

    Args:
        train: the ids of the tokens of each row.
        test: the ids of the masked tokens of each row.
        metric: of the task; it is reset before and after.
        vocabulary: number of tokens.
    """
    started = time.perf_counter()
    counts = torch.ones(vocabulary, dtype=torch.float64)  # one of each, so that none has probability 0
    for row in train.labels:
        counts += torch.bincount(torch.tensor(row, dtype=torch.long), minlength=vocabulary)
    logits = (counts / counts.sum()).log().float()
    metric.reset()
    masked = torch.cat([torch.tensor(row, dtype=torch.long) for row in test.labels])
    for part in masked.split(TOKENS_AT_ONCE):
        metric.update(logits.expand(len(part), vocabulary), [part])
    scores = metric.compute()
    metric.reset()
    method = f"each token by its share of the {int(counts.sum()) - vocabulary:,} tokens of the train rows"
    return (Baseline(name="unigram", method=method, metrics=scores, fitted_rows=len(train), seconds=_since(started)),)


def _name(metric: Any, total: Counter[int]) -> str:
    return repr(metric.label_names[total.most_common(1)[0][0]])


def _since(started: float) -> float:
    return time.perf_counter() - started
