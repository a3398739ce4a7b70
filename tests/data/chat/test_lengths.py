"""Rows of more than max_length tokens, raw texts, and the token that begins a text."""

from __future__ import annotations

from typing import Any

import pytest

from chat_rows import CHATML, INSTRUCT, talk
from supertrainer.core.errors import DataError
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.llm import LlmDataset

ABC = "abcdefghij"  # ten tokens


def texts(data: LlmDataset, tokenizer: Any) -> list[str]:
    """The train rows as text, special tokens too."""
    return [tokenizer.decode(row["input_ids"]) for row in data.encode(data.load()["train"], tokenizer)]


def raw(dataset: Any, **settings: Any) -> LlmDataset:
    return dataset([{"text": ABC}, {"text": "xyz"}], **settings)


@pytest.mark.parametrize(("adds_begin", "begin"), [(True, "<s>"), (False, "")])
def test_a_raw_text_has_one_begin_and_one_end(adds_begin: bool, begin: str, dataset: Any, make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(None, adds_begin=adds_begin, eos="</s>")
    assert texts(raw(dataset), tokenizer) == [f"{begin}{ABC}</s>", f"{begin}xyz</s>"]
    written = dataset([{"text": f"{begin}xyz</s>"}])
    assert texts(written, tokenizer) == [f"{begin}xyz</s>"]


def test_of_a_raw_text_every_token_is_learnt(dataset: Any, make_tokenizer: Any) -> None:
    data = raw(dataset)
    for row in data.encode(data.load()["train"], make_tokenizer(None, adds_begin=True)):
        assert row["labels"] == row["input_ids"]


@pytest.mark.parametrize("adds_begin", [True, False])
@pytest.mark.parametrize("begins", ["", "{{ bos_token }}", "{{ bos_token }}{{ bos_token }}"])
def test_a_conversation_has_one_begin_whoever_writes_it(
    adds_begin: bool, begins: str, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    tokenizer = make_tokenizer(begins + CHATML, adds_begin=adds_begin)
    data = dataset([{"messages": talk("a", "b")}])
    [text] = texts(data, tokenizer)
    assert text.count("<s>") == (1 if adds_begin or begins else 0)
    assert learnt(data, tokenizer) == [["b<|im_end|>"]]


@pytest.mark.parametrize(
    ("template", "adds_begin"), [(CHATML, False), (CHATML, True), (INSTRUCT, True), (INSTRUCT, False)]
)
def test_a_prompt_of_inference_is_what_training_has_before_the_answer(
    template: str, adds_begin: bool, dataset: Any, make_tokenizer: Any
) -> None:
    tokenizer = make_tokenizer(template, adds_begin=adds_begin)
    data = dataset([{"messages": talk("Hi", "Hello", "Bye", "So long")}], train_on="last")
    row = data.encode(data.load()["train"], tokenizer)[0]
    answer = next(place for place, label in enumerate(row["labels"]) if label != -100)
    conversation = data.conversation("train", 0)
    assert conversation.reference == {"role": "assistant", "content": "So long"}
    assert render_prompt(conversation.prompt, tokenizer) == row["input_ids"][:answer]


def test_too_long_rows_are_an_error_that_names_the_longest_first(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"text": "a" * 20}, {"text": ABC}, {"text": "a" * 30}], max_length=16)
    with pytest.raises(
        DataError,
        match=r"max_length=16 tokens \(2\): train\.jsonl:3 \(31\), train\.jsonl:1 \(21\)\.[\s\S]*max_length=31",
    ):
        data.model_rows("train", make_tokenizer(None))


@pytest.mark.parametrize(
    ("policy", "expected", "note"),
    [
        ("drop", ["<s>xyz</s>"], "1 of 2 rows are longer than 7 tokens and were left out"),
        ("left", ["<s>fghij</s>", "<s>xyz</s>"], "cut on the left; 5 tokens of the answers of 1 rows were lost"),
        ("right", ["<s>abcdef", "<s>xyz</s>"], "cut on the right; 5 tokens of the answers of 1 rows were lost"),
        ("split", ["<s>abcdef", "<s>ghij</s>", "<s>xyz</s>"], "became 2 rows"),
    ],
)
def test_what_becomes_of_a_long_text(
    policy: str, expected: list[str], note: str, dataset: Any, make_tokenizer: Any
) -> None:
    data = raw(dataset, max_length=7, on_too_long=policy)
    encoded = data.encode(data.load()["train"], make_tokenizer(None, adds_begin=True, eos="</s>"))
    tokenizer = make_tokenizer(None, adds_begin=True, eos="</s>")
    assert texts(data, tokenizer) == expected
    assert note in data.load().report.notes[-1]
    assert max(encoded["length"]) <= 7
    assert sum(encoded["truncated"]) == (1 if policy in ("left", "right") else 0)


@pytest.mark.parametrize(("policy", "expected"), [("split", ["<s>abcdef", "<s>ghij<s>"]), ("left", ["<s>fghij<s>"])])
def test_a_token_that_begins_and_ends_texts_begins_every_part(
    policy: str, expected: list[str], dataset: Any, make_tokenizer: Any
) -> None:
    data = dataset([{"text": ABC}], max_length=7, on_too_long=policy)
    assert texts(data, make_tokenizer(None, adds_begin=True, eos="<s>")) == expected


def test_a_text_of_just_the_length_is_not_long(dataset: Any, make_tokenizer: Any) -> None:
    data = raw(dataset, max_length=11)
    assert max(data.encode(data.load()["train"], make_tokenizer(None))["length"]) == 11


def test_a_split_without_begin_joins_to_the_whole_text(dataset: Any, make_tokenizer: Any) -> None:
    data = raw(dataset, max_length=4, on_too_long="split")
    encoded = data.encode(data.load()["train"], make_tokenizer(None, eos="</s>"))
    assert "".join(texts(data, make_tokenizer(None, eos="</s>"))) == f"{ABC}</s>xyz</s>"
    assert encoded["row"] == [0, 0, 0, 1]


def test_a_cut_that_leaves_no_answer_is_an_error_or_dropped(dataset: Any, make_tokenizer: Any) -> None:
    rows = [{"messages": talk("a" * 50, "b")}, {"messages": talk("a", "b")}]
    settings = {"max_length": 40, "on_too_long": "right"}
    with pytest.raises(DataError, match=r"without a token to learn after the cut \(1\): train\.jsonl:1"):
        dataset(rows, **settings).model_rows("train", make_tokenizer())
    data = dataset(rows, **settings, on_nothing_to_learn="drop")
    assert len(data.model_rows("train", make_tokenizer())) == 1
    assert data.load().report.notes[-1] == "train: 1 rows with nothing to learn after the cut were left out."


def test_parts_of_a_prompt_that_hold_no_answer_are_left_out(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"messages": talk("a" * 90, "b")}], max_length=50, on_too_long="split")
    encoded = data.encode(data.load()["train"], make_tokenizer())
    assert len(encoded) == 1
    assert "became 1 rows, 2 more had nothing to learn" in data.load().report.notes[-1]


def test_a_text_that_fits_no_policy_leaves_no_rows(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"text": ABC}], max_length=5, on_too_long="drop")
    with pytest.raises(DataError, match=r"train has no rows left\.[\s\S]*were left out"):
        data.model_rows("train", make_tokenizer(None))


def test_a_token_that_begins_every_turn_is_not_kept_before_a_cut(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"messages": talk("a" * 30, "bcdefgh")}], max_length=6, on_too_long="left")
    assert texts(data, make_tokenizer(bos="<|im_start|>")) == ["efgh<|im_end|>\n"]
