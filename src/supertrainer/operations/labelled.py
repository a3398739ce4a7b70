"""The rows of a split as a benchmark takes them: texts, and what was to be predicted of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from supertrainer.benchmark.rows import LabelledTexts
from supertrainer.data.masking import MaskedRows


class LazyColumn(Sequence[Any]):
    """Values that are made when they are asked for."""

    def __init__(self, make: Callable[[int], Any], length: int) -> None:
        self._make = make
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._make(index)

    def __iter__(self) -> Iterator[Any]:
        return (self._make(index) for index in range(self._length))


def to_be_scored(dataset: Any, split: str, rows: Any, tokenizer: PreTrainedTokenizerBase) -> LabelledTexts:
    """A split of `BertDataset` with the labels that the model's predictions are compared with.

    Args:
        rows: the split as the model takes it.
    """
    if isinstance(rows, MaskedRows):
        texts = LazyColumn(lambda number: tokenizer.decode(rows[number]["input_ids"].tolist()), len(rows))
        labels = LazyColumn(lambda number: rows.references([number])[0].tolist(), len(rows))
        vocabulary = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        return LabelledTexts(texts=texts, labels=labels, names=tuple(vocabulary))
    given = dataset.load()[split]
    if dataset.task == "token_classification":
        words, places = given["text"], dataset.encode(given, tokenizer)["words"]
        kept = LazyColumn(lambda number: tuple(words[number][place] for place in places[number]), len(given))
        return LabelledTexts(
            texts=kept,
            labels=LazyColumn(lambda number: rows.references([number])[0].tolist(), len(given)),
            names=dataset.label_names,
        )
    return _whole_texts(dataset, given)


def to_learn_from(dataset: Any, tokenizer: PreTrainedTokenizerBase) -> LabelledTexts:
    """The train rows of `BertDataset`, for baselines: of a masked language model every token of each row."""
    given = dataset.load()["train"]
    if dataset.task == "masked_lm":
        encoded, special = dataset.encode(given, tokenizer)["input_ids"], frozenset(tokenizer.all_special_ids)
        tokens = LazyColumn(lambda number: [i for i in encoded[number] if i not in special], len(encoded))
        return LabelledTexts(texts=LazyColumn(lambda number: "", len(encoded)), labels=tokens)
    if dataset.task == "token_classification":
        return LabelledTexts(texts=given["text"], labels=given["label"], names=dataset.label_names)
    return _whole_texts(dataset, given)


def _whole_texts(dataset: Any, rows: Any) -> LabelledTexts:
    texts = rows["text"]
    if "text_pair" in rows.column_names:
        texts = list(zip(texts, rows["text_pair"], strict=True))
    return LabelledTexts(texts=texts, labels=rows["label"], names=dataset.label_names)
