"""Which tokens a masked language model has to tell: a function of seed, epoch and row, drawn when a row is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from supertrainer.core.errors import ConfigError
from supertrainer.data.batching import GHOST, MicroBatchSampler
from supertrainer.data.collation import IGNORED, EncodedRows
from supertrainer.data.schema import MaskingConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TRAINING, _EVALUATION = 0, 1  # streams of draws


class MaskedRows:
    """Encoded rows with some tokens masked: `input_ids` as the model sees them, `labels` the tokens that were there.

    A row that is taken by its number alone has the masks of evaluation, the same in every epoch and for every run.seed;
    taken by (epoch, number) it has those of training. Both are the same on every process and in every worker.
    """

    documents = None  # windows of a text are rows of their own: nothing is predicted for a text as a whole

    def __init__(
        self,
        rows: EncodedRows,
        config: MaskingConfig,
        *,
        tokenizer: PreTrainedTokenizerBase,
        seed: int,
        evaluation_seed: int,
    ) -> None:
        """
        Args:
            rows: with `word_ids`.
            config: how many are masked, and how.
            tokenizer: has the mask token.
            seed: of training's masks.
            evaluation_seed: of evaluation's.

        Raises:
            ConfigError: the tokenizer has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                "the tokenizer has no mask token, which model.task=masked_lm needs.",
                fix="add mask_token to its tokenizer_config.json, or take the tokenizer of an encoder.",
            )
        self._rows = rows
        self._config = config
        self._seeds = {_TRAINING: seed, _EVALUATION: evaluation_seed}
        self._mask = tokenizer.mask_token_id
        special = set(tokenizer.all_special_ids)
        self._vocabulary = np.asarray([i for i in range(len(tokenizer)) if i not in special], dtype=np.int32)
        self.lengths = rows.lengths
        self.unit_lengths = rows.lengths

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int | tuple[int, int]) -> dict[str, Any]:
        """One row: `input_ids`, `token_type_ids` where there are, `labels`, (T,)."""
        epoch, number = index if isinstance(index, tuple) else (None, index)
        feature = dict(self._rows[number])
        ids = feature["input_ids"]
        feature["labels"] = np.full_like(ids, IGNORED)
        if number != GHOST:
            key = (_EVALUATION, number) if epoch is None else (_TRAINING, epoch, number)
            chosen, masked = self._masked(ids, self._rows.word_ids(number), key=key)
            feature["labels"][chosen] = ids[chosen]
            feature["input_ids"] = masked
        return feature

    def collate(self, features: Sequence[Mapping[str, Any]], **how: Any) -> dict[str, torch.Tensor]:
        """A batch of rows, as those that they are made of make it."""
        return self._rows.collate(features, **how)

    def token_counts(self) -> torch.Tensor:
        """How often each token stands in a word of the rows, up to the highest there, (V,)."""
        return self._rows.token_counts()

    def references(self, numbers: Sequence[int]) -> list[torch.Tensor]:
        """The tokens that have to be told, of each row."""
        labels = (self[number]["labels"] for number in numbers)
        return [torch.from_numpy(row[row != IGNORED].astype(np.int64)) for row in labels]

    def _masked(self, ids: np.ndarray, words: np.ndarray, *, key: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The places that are to be told, and the tokens as the model sees them."""
        # Raw draws of the bit generator: numpy promises that they never change, unlike those of its distributions.
        draws = np.random.PCG64(np.random.SeedSequence([self._seeds[key[0]], *key]))
        tokens = np.flatnonzero(words >= 0)
        wanted = max(1, round(self._config.probability * len(tokens)))
        if self._config.whole_words:
            chosen = _whole_words(words, wanted, order=np.argsort(draws.random_raw(len(ids)), kind="stable"))
        else:
            chosen = np.sort(tokens[np.argsort(draws.random_raw(len(tokens)), kind="stable")[:wanted]])
        share = draws.random_raw(len(ids))[chosen] / 2**64
        other = self._vocabulary[(draws.random_raw(len(ids)) % np.uint64(len(self._vocabulary))).astype(np.int64)]
        masked = ids.copy()
        masked[chosen] = np.where(
            share < self._config.mask,
            self._mask,
            np.where(share < self._config.mask + self._config.random, other[chosen], ids[chosen]),
        )
        return chosen, masked


class EpochNumbers:
    """A batch sampler that gives (epoch, row) for every row of another one."""

    def __init__(self, sampler: MicroBatchSampler) -> None:
        self._sampler = sampler

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for rows in self._sampler:
            yield [(self._sampler.epoch, row) for row in rows]


def _whole_words(words: np.ndarray, wanted: int, *, order: np.ndarray) -> np.ndarray:
    """The places of whole words in random order, up to `wanted` sub-words; a word that is too long is passed over.

    Where every word is too long the first one is taken.
    """
    starts = np.flatnonzero((words >= 0) & (words != np.concatenate([[-1], words[:-1]])))
    groups = {int(start): np.flatnonzero(_run(words, int(start))) for start in starts}
    chosen: list[int] = []
    for start in (int(place) for place in order if int(place) in groups):
        if len(chosen) + len(groups[start]) <= wanted:
            chosen += groups[start].tolist()
    if not chosen and len(starts):
        chosen = groups[next(int(place) for place in order if int(place) in groups)].tolist()
    return np.asarray(sorted(chosen), dtype=np.int64)


def _run(words: np.ndarray, start: int) -> np.ndarray:
    """The tokens from `start` on that are of the same word without a break."""
    same = words == words[start]
    same[:start] = False
    after = np.flatnonzero(~same[start:])
    if len(after):
        same[start + int(after[0]) :] = False
    return same
