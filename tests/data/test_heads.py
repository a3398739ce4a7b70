"""Rows of every head: labels, numbers, tags, masks, windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from supertrainer.core.errors import DataError
from supertrainer.data.bert import BertDataset
from supertrainer.data.collation import EncodedRows, collate
from supertrainer.data.masking import MaskedRows
from supertrainer.data.schema import BertDatasetConfig, MaskingConfig
from supertrainer.data.tokenization import encode_texts, encode_windows
from supertrainer.data.words import encode_words
from tiny_models import tiny_texts, tiny_tokenizer


def dataset(tmp_path: Path, task: Any, rows: list[dict[str, Any]], **config: Any) -> BertDataset:
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return BertDataset(
        BertDatasetConfig(_target_="x", source=str(tmp_path / "rows.jsonl"), **config), seed=0, task=task
    )


def test_labels_come_as_lists_or_as_texts(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": ["x", "y", "x"]}, {"text": "b", "label": "y , z"}, {"text": "c", "label": ""}]
    read = dataset(tmp_path, "multi_label", rows)
    assert read.label_names == ("x", "y", "z")
    assert read.load()["train"]["label"][:] == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]


def test_a_row_whose_labels_are_missing_is_not_a_row_without_labels(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": ["x"]}, {"text": "b", "label": None}, {"text": "c", "label": ["y"]}]
    with pytest.raises(DataError, match=r"rows without label \(1\): rows\.jsonl:2"):
        dataset(tmp_path, "multi_label", rows).load()


def test_numbers_come_as_numbers_or_as_texts(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": "2.5"}, {"text": "c", "label": -0.25}]
    read = dataset(tmp_path, "regression", rows)
    assert read.label_names == ("label",)
    assert read.load()["train"]["label"][:] == [1.0, 2.5, -0.25]


def test_a_cell_that_is_no_number_is_named(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": "much"}, {"text": "c", "label": 3}]
    with pytest.raises(DataError, match=r"no number in the column 'label'.*rows\.jsonl:2 \(str 'much'\)"):
        dataset(tmp_path, "regression", rows).load()


def test_tags_are_completed_and_stand_on_the_first_subword(tmp_path: Path) -> None:
    rows = [{"text": ["w1", "w2", "w3"], "label": ["B-PER", "O", "O"]}, {"text": "w4 w5", "label": "O B-LOC"}]
    read = dataset(tmp_path, "token_classification", rows)
    assert read.label_names == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    encoded = read.encode(read.load()["train"], tiny_tokenizer())
    assert encoded["labels"][:] == [[-100, 3, 0, 0, -100], [-100, 0, 1, -100]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": ["a", "b"], "label": ["O"]}, r"another number of tags.*rows\.jsonl:3 \(2 words, 1 tags\)"),
        ({"text": ["a", "b"], "label": ["O", "I-X"]}, r"(?s)goes on from no B-.*word 2: I-X.*on_broken_tags=repair"),
    ],
)
def test_faulty_tags_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    good = [{"text": ["c", "d"], "label": ["B-X", "I-X"]}, {"text": ["e"], "label": ["O"]}]
    read = dataset(tmp_path, "token_classification", [*good, row])
    with pytest.raises(DataError, match=message):
        read.load()


def test_broken_tags_are_repaired_where_asked(tmp_path: Path) -> None:
    rows = [{"text": ["a", "b", "c"], "label": ["I-X", "I-X", "O"]}]
    read = dataset(tmp_path, "token_classification", rows, on_broken_tags="repair")
    assert read.load()["train"]["label"][:] == [[1, 2, 0]]
    assert read.load().report.notes == ["An I- tag that began a span became a B-: train, 1 of them."]


def subword_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer that cuts words, of each family: WordPiece marks, byte-level spaces, SentencePiece's ▁."""
    texts = ["unbelievable things happened in Amsterdam", "the thing is unbelievable", "an Amsterdam thing"]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    elif kind == "bytes":
        tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=50, special_tokens=special, show_progress=False)
    else:
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(vocab_size=50, special_tokens=special, unk_token="[UNK]", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "sentencepiece"])
def test_every_word_has_one_label_whatever_the_tokenizer(kind: str) -> None:
    tokenizer, words = subword_tokenizer(kind), ["unbelievable", "thing", "in", "Amsterdam"]
    [row] = encode_words([words], tokenizer, max_length=200, tags=[[7, 8, 9, 10]])
    assert [label for label in row["labels"] if label != -100] == [7, 8, 9, 10]
    assert len(row["input_ids"]) > len(words)
    for place, label in enumerate(row["labels"]):
        if label != -100:  # the token begins the word
            piece = tokenizer.decode([row["input_ids"][place]]).strip().removeprefix("▁")
            assert words[label - 7].startswith(piece)


def test_words_that_are_cut_off_are_counted(tmp_path: Path) -> None:
    rows = [{"text": [f"w{i}" for i in range(10)], "label": ["B-X"] + ["O"] * 9}, {"text": ["w1"], "label": ["O"]}]
    read = dataset(tmp_path, "token_classification", rows, max_length=6)
    train = read.load()["train"]
    for _ in range(2):  # told once, however often the rows are encoded
        assert read.encode(train, tiny_tokenizer())["words"][:] == [[0, 1, 2, 3], [0]]
    assert read.load().report.notes == [
        "train: 1 of 2 rows are longer than 6 tokens and were cut.",
        "train: 6 words of 1 rows are cut off or have no token: they aren't scored.",
    ]


def test_windows_cover_a_text_and_share_tokens() -> None:
    encoded = encode_windows(["w0 w1 w2 w3 w4 w5", "w9"], tiny_tokenizer(), max_length=5, overlap=1)
    words = [[token - 6 for token in row[1:-1]] for row in encoded["input_ids"]]
    assert words == [[0, 1, 2], [2, 3, 4], [4, 5], [9]]
    assert encoded["document"][:] == [0, 0, 0, 1]
    assert EncodedRows(encoded).documents.tolist() == [0, 3, 4]
    assert EncodedRows(encoded).unit_lengths.tolist() == [5 + 5 + 4, 3]


def test_windows_carry_the_label_of_their_text(tmp_path: Path) -> None:
    rows = [{"text": "w0 w1 w2 w3 w4 w5", "label": 2.5}, {"text": "w9", "label": 1}]
    read = dataset(tmp_path, "regression", rows, max_length=5, long_texts="stride", overlap=1)
    encoded = read.encode(read.load()["train"], tiny_tokenizer())
    assert encoded["labels"][:] == [2.5, 2.5, 2.5, 1.0]
    assert EncodedRows(encoded).references([1, 0]).tolist() == [1.0, 2.5]
    assert read.load().report.notes == [
        "train: 1 of 2 texts are longer than 5 tokens; 4 windows, 1 tokens shared, one prediction a text by the mean "
        "of its windows' logits."
    ]


def masked(texts: list[str], **config: Any) -> MaskedRows:
    tokenizer = tiny_tokenizer()
    encoded = EncodedRows(encode_texts(texts, tokenizer, max_length=64, with_words=True))
    return MaskedRows(encoded, MaskingConfig(**config), tokenizer=tokenizer, seed=1, evaluation_seed=2)


def test_masks_are_a_function_of_seed_epoch_and_row() -> None:
    texts = tiny_texts(6, shortest=15)
    one, other = masked(texts), masked(texts)
    for key in ((0, 3), (1, 3), 3):
        assert np.array_equal(one[key]["input_ids"], other[key]["input_ids"])
    assert not np.array_equal(one[(0, 3)]["labels"], one[(1, 3)]["labels"])
    assert not np.array_equal(one[(0, 3)]["labels"], one[3]["labels"])


def test_fifteen_percent_are_masked_and_special_tokens_never() -> None:
    rows = masked(tiny_texts(200, shortest=20, longest=20))
    features = [rows[(epoch, row)] for epoch in range(10) for row in range(200)]
    labels = np.stack([feature["labels"] for feature in features])
    ids = np.stack([feature["input_ids"] for feature in features])
    chosen = labels != -100
    assert (chosen.sum(axis=1) == 3).all()  # 15 % of 20
    assert not chosen[:, [0, -1]].any()
    share = {
        "mask": (ids[chosen] == 4).mean(),
        "same": (ids[chosen] == labels[chosen]).mean(),
        "special": np.isin(ids[chosen], [0, 1, 2, 3]).mean(),
    }
    assert share["mask"] == pytest.approx(0.8, abs=0.02)
    assert share["same"] == pytest.approx(0.1 + 0.1 / 95, abs=0.02)
    assert share["special"] == 0


def test_whole_words_are_masked_together() -> None:
    tokenizer = subword_tokenizer("wordpiece")
    tokenizer.mask_token = "[MASK]"
    encoded = encode_texts(["unbelievable thing in Amsterdam"] * 30, tokenizer, max_length=64, with_words=True)
    rows = MaskedRows(
        EncodedRows(encoded),
        MaskingConfig(probability=0.5, whole_words=True),
        tokenizer=tokenizer,
        seed=1,
        evaluation_seed=2,
    )
    words = np.asarray(encoded["word_ids"][0])
    assert len(words) > 4
    for epoch in range(30):
        told = rows[(epoch, 0)]["labels"] != -100
        assert all(told[words == word].all() or not told[words == word].any() for word in set(words.tolist()))


def test_a_short_row_has_one_mask_and_a_ghost_none() -> None:
    rows = masked(["w1", "w2 w3"])
    assert (rows[(0, 0)]["labels"] != -100).sum() == 1
    assert (rows[-1]["labels"] == -100).all()


def test_ghosts_of_numbers_and_labels_are_nan() -> None:
    batch = collate(
        [{"input_ids": np.array([1]), "labels": 0.5}, {"input_ids": np.array([1]), "labels": float("nan")}],
        pad_token_id=0,
    )
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].isnan().tolist() == [False, True]


ONE_ROW: dict[str, dict[str, Any]] = {
    "sequence_classification": {"text": "w1 w2", "label": "a"},
    "multi_label": {"text": "w1 w2", "label": ["a", "b"]},
    "regression": {"text": "w1 w2", "label": 1.5},
    "token_classification": {"text": ["w1", "w2"], "label": ["O", "B-X"]},
    "masked_lm": {"text": "w1 w2", "label": "a"},
}


@pytest.mark.parametrize("task", ONE_ROW)
def test_columns_of_any_name_stay_out_of_the_models_way(tmp_path: Path, task: str) -> None:
    """Elsewhere columns are kept or dropped by the names of a model's arguments."""
    other = {"sequence_classification": "b", "multi_label": ["b"], "regression": 2.5}
    plain = [ONE_ROW[task], {**ONE_ROW[task], "label": other.get(task, ONE_ROW[task]["label"])}]
    clutter = {"input_ids": "x", "labels": 3, "attention_mask": None, "label_ids": "y"}
    encoded = []
    for number, rows in enumerate((plain, [{**clutter, **row} for row in plain])):
        (tmp_path / str(number)).mkdir()
        read = dataset(tmp_path / str(number), task, rows)
        encoded.append(read.encode(read.load()["train"], tiny_tokenizer())[:])
    assert encoded[0] == encoded[1]
    assert encoded[0]["input_ids"] == [[2, 7, 8, 3]] * 2


@pytest.mark.parametrize("task", ONE_ROW)
def test_columns_of_other_names_are_told_with_those_there_are(tmp_path: Path, task: str) -> None:
    rows = [{"txt": ONE_ROW[task]["text"], "lable": ONE_ROW[task]["label"]}] * 2
    with pytest.raises(DataError) as caught:
        dataset(tmp_path, task, rows).load()
    told = str(caught.value)
    assert "rows.jsonl has no column 'text' (dataset.columns.text). It has: txt, lable." in told
    assert "dataset.columns.text=txt" in told
    assert ("dataset.columns.label=lable" in told) == (task != "masked_lm")  # which reads no label


def test_a_text_may_have_several_numbers_where_all_are_kept(tmp_path: Path) -> None:
    rows = [{"text": "w1", "label": 1}, {"text": "w1", "label": 3}, {"text": "w2", "label": 2}]
    read = dataset(tmp_path, "regression", rows, on_repeated_rows="keep")
    assert read.load()["train"]["label"][:] == [1.0, 3.0, 2.0]
    with pytest.raises(DataError, match=r"(?s)repeat a text with another label.*on_repeated_rows=keep"):
        dataset(tmp_path, "regression", rows, on_repeated_rows="drop").load()


def test_one_label_is_told_from_none(tmp_path: Path) -> None:
    rows = [{"text": f"w{i}", "label": ["spam"] if i % 2 else []} for i in range(6)]
    read = dataset(tmp_path, "multi_label", rows)
    assert read.label_names == ("spam",)
    assert read.load()["train"]["label"][:] == [[0.0], [1.0]] * 3


def test_the_same_labels_on_every_row_are_no_choice(tmp_path: Path) -> None:
    rows = [{"text": f"w{i}", "label": label} for i, label in enumerate(["a,b", ["b", "a"], "b, a, a"])]
    with pytest.raises(DataError, match=r"(?s)all 3 train rows have the labels 'a', 'b'\..*nothing to tell apart"):
        dataset(tmp_path, "multi_label", rows).load()
    with pytest.raises(DataError, match=r"all 2 train rows have no label\."):
        dataset(tmp_path, "multi_label", [{"text": "w1", "label": []}, {"text": "w2", "label": []}]).load()


def test_a_number_whose_square_is_infinite_is_told_before_training(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": 1}, {"text": "b", "label": "-1e30"}]
    with pytest.raises(DataError, match=r"(?s)the column 'label' holds the number -1e\+30.*infinite at the first step"):
        dataset(tmp_path, "regression", rows).load()


def test_too_few_texts_for_splits_of_a_head_without_strata_name_no_label(tmp_path: Path) -> None:
    rows = [{"text": ["w1"], "label": ["B-X"]}, {"text": ["w1"], "label": ["B-X"]}]
    with pytest.raises(DataError, match=r"(?s)the rows have 1 different text: too few for train, validation\."):
        dataset(tmp_path, "token_classification", rows, splits={"train": None, "validation": 0.5}).load()
