"""Rows for an encoder that reads pictures and question and a decoder that answers; a text before questions."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.batching import GHOST
from supertrainer.data.chat.conversation import Conversation
from supertrainer.data.chat.question_prefix import question_prefix_of
from supertrainer.data.chat.rendering import render
from supertrainer.data.chat.template_arguments import TemplateArguments
from supertrainer.data.schema import MllmDatasetConfig
from supertrainer.data.vision.processing import PictureProcessor
from supertrainer.data.vision.prompts import picture_prompt
from tiny_vision import FAMILIES, picture, tiny_florence2, tiny_instructblip, tiny_llava, tiny_qwen2_5_vl

TURNS = ("a", "b", "c", "de")


def row(*turns: str, images: tuple[str, ...] = ("small.png",)) -> dict[str, Any]:
    """A conversation that a user begins, with its pictures before the first question."""
    messages = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(turns)]
    messages[0]["content"] = [*({"type": "image"} for _ in images), {"type": "text", "text": turns[0]}]
    return {"images": list(images), "messages": messages}


def prompt(processor: Any, question: str, *, images: int = 1, **how: Any) -> list[int]:
    reading = PictureProcessor(processor, chat_template=None, **how)
    content = [*({"type": "image"} for _ in range(images)), {"type": "text", "text": question}]
    talk = Conversation(({"role": "user", "content": content},))
    made = picture_prompt(talk, pictures=["x"] * images, sizes=[(20, 12)] * images, place="a row", processor=reading)
    found: list[int] = made["input_ids"].tolist()
    return found


def test_a_batch_by_hand(dataset: Any) -> None:
    rows = [{"image": "small.png", "question": "a", "answer": "b"}, {"question": "ac", "answer": "bcc"}]
    made = dataset(rows).model_rows("train", tiny_florence2())
    a, b, c = (made._processor.tokenizer.get_vocab()[token] for token in "abc")
    batch = made.collate([made[0], made[1]], pad_token_id=0)
    assert batch["input_ids"].tolist() == [[5, 5, 5, 5, 1, a, 2], [1, a, c, 2, 0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1] * 7, [1] * 4 + [0] * 3]
    assert batch["decoder_input_ids"].tolist() == [[2, 1, b, 2, 0, 0], [2, 1, b, c, c, 2]]
    assert batch["decoder_attention_mask"].tolist() == [[1] * 4 + [0] * 2, [1] * 6]
    assert batch["labels"].tolist() == [[-100, -100, b, 2, -100, -100], [-100, -100, b, c, c, 2]]
    assert batch["pixel_values"].shape == (1, 3, 16, 16)
    ghost = made.collate([made[GHOST]], pad_token_id=0, pad_to_multiple_of=4)
    assert not (ghost["labels"] != -100).any()
    assert (ghost["input_ids"].shape[1] % 4, ghost["decoder_input_ids"].shape) == (0, (1, 4))


@pytest.mark.parametrize(
    "question", ["What is it?", "<CAPTION>", "<OD>", "<REGION_TO_OCR>  <loc_1><loc_2>", "<VQA>How many?"]
)
def test_a_prompt_is_what_the_processor_writes(question: str) -> None:
    """With its sentences for the words of tasks, of which those for regions take further text."""
    processor = tiny_florence2()
    assert prompt(processor, question) == processor(text=question, images=picture())["input_ids"][0]


def test_a_task_that_takes_no_further_text_is_refused_with_some() -> None:
    with pytest.raises(DataError, match=r"the task <CAPTION> takes no further text.*<CAPTION> of what"):
        prompt(tiny_florence2(), "<CAPTION> of what")


def test_earlier_turns_are_the_encoders_and_the_last_answer_the_decoders(dataset: Any) -> None:
    made = dataset([row(*TURNS)], train_on="last").model_rows("train", tiny_florence2())
    batch = made.collate([made[0]], pad_token_id=0)
    tokenizer = made._processor.tokenizer
    assert tokenizer.decode(batch["input_ids"][0]) == "<image><image><image><image><s>a\nb\nc</s>"
    assert tokenizer.decode(batch["decoder_input_ids"][0]) == "</s><s>de</s>"
    learnt = batch["labels"][0]
    assert tokenizer.decode(learnt[learnt != -100]) == "de</s>"


@pytest.mark.parametrize(
    ("turns", "train_on", "words"),
    [
        (TURNS, "assistant", "wants 2 answers of train.jsonl:1.*1 of 1 rows.*train_on=last"),
        (TURNS[:3], "last", "wants 1 answers of train.jsonl:1.*not the one that it ends with.*ends with its answer"),
        (TURNS[:2], "all", "train_on=all.*only what its decoder writes"),
    ],
)
def test_what_a_decoder_cannot_learn_is_refused(turns: Any, train_on: str, words: str, dataset: Any) -> None:
    data = dataset([row(*turns)], train_on=train_on)
    with pytest.raises(ConfigError, match=f"(?s){words}"):
        data.encode(data.load()["train"], tiny_florence2())


@pytest.mark.parametrize(("policy", "left"), [("left", "<image><image><image><image><s>fgh</s>"), ("right", None)])
def test_a_cut_takes_text_and_never_a_picture(policy: str, left: str | None, dataset: Any) -> None:
    """Question and answer are counted together: from the left the question goes first, from the right the answer."""
    data = dataset([row("abcdefgh", "xyz")], max_length=13 if left else 16, on_too_long=policy)
    made = data.model_rows("train", tiny_florence2())
    batch, tokenizer = made.collate([made[0]], pad_token_id=0), made._processor.tokenizer
    read, written = (tokenizer.decode(batch[name][0]) for name in ("input_ids", "decoder_input_ids"))
    whole = "<image><image><image><image><s>abcdefgh</s>"
    assert (read, written) == ((left, "</s><s>xyz</s>") if left else (whole, "</s><s>xy"))


def test_another_number_of_picture_tokens_is_told_with_its_row(dataset: Any) -> None:
    made = dataset([row("a", "b")]).model_rows("train", tiny_florence2())
    feature = {**made[0], "input_ids": made[0]["input_ids"][1:], "labels": made[0]["labels"][1:]}
    with pytest.raises(DataError, match=r"train.jsonl:1 has 3 tokens for its 1 pictures.*writes 4"):
        made.collate([feature], pad_token_id=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prefix_stands_before_every_question_and_stays_with_the_template(family: str, dataset: Any) -> None:
    """In templates of parts and of texts; learnt is what was learnt; a later training may change it or take it away."""
    plain, processor = FAMILIES[family](), FAMILIES[family]()
    without = prompt(plain, "What?")
    before = processor.tokenizer.tokenize("Q: ")
    asked = prompt(processor, "What?", question_prefix="Q: ")
    assert len(asked) == len(without) + len(before)
    assert processor.tokenizer.decode(asked).count("Q: What?") == 1
    assert prompt(processor, "What?") == asked  # the template alone has it
    assert prompt(processor, "What?", question_prefix="") == without
    assert processor.tokenizer.chat_template == plain.tokenizer.chat_template
    rows = dataset([row("What?", "b")], question_prefix="Q: ").model_rows("train", FAMILIES[family]())
    ids, labels = rows[0]["input_ids"], rows[0]["labels"]
    assert rows._processor.tokenizer.decode(ids).count("Q: What?") == 1
    assert rows._processor.tokenizer.decode(labels[labels != -100]).strip().startswith("b")


def test_arguments_of_a_template_and_its_date_are_kept_in_the_processor() -> None:
    template = "{{ style }}{{ strftime_now('%Y') }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    arguments = TemplateArguments({"style": "a"}, datetime.date(2026, 3, 1))
    reading = PictureProcessor(tiny_llava(chat_template=template), chat_template=None, arguments=arguments)
    kept = reading.processor.chat_template
    assert kept == reading.tokenizer.chat_template
    again = PictureProcessor(tiny_llava(chat_template=kept), chat_template=None, question_prefix="Q: ")
    assert render([{"role": "user", "content": "b"}], again.tokenizer).text == "a2026Q: b"


def test_a_prefix_stands_before_the_words_of_a_text_with_placeholders() -> None:
    template = "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }};{% endfor %}"
    reading = PictureProcessor(tiny_llava(chat_template=template), chat_template=None, question_prefix="Q: ")
    shown = {"type": "image"}
    content = [shown, {"type": "text", "text": "this or"}, shown, {"type": "text", "text": "this?"}]
    talk = Conversation(({"role": "user", "content": content},))
    made = picture_prompt(talk, pictures=["x"] * 2, sizes=[(20, 12)] * 2, place="a row", processor=reading)
    text = reading.tokenizer.decode(made["input_ids"]).replace("<image>" * 4, "[]")
    assert text == "<s>user:[]\nQ: this or\n[]\nthis?;"


def test_every_question_gets_the_prefix_and_no_answer(dataset: Any) -> None:
    rows = dataset([row(*TURNS)], question_prefix="<VQA>").model_rows("train", tiny_qwen2_5_vl())
    text = rows._processor.tokenizer.decode(rows[0]["input_ids"])
    assert text.count("<VQA>") == 2
    assert all(f"<VQA>{question}<|im_end|>" in text for question in ("a", "c"))


def test_a_prefix_with_a_task_s_word_is_that_task() -> None:
    processor = tiny_florence2()
    found = prompt(processor, "the cat", question_prefix="<OPEN_VOCABULARY_DETECTION>")
    assert found == processor(text="<OPEN_VOCABULARY_DETECTION>the cat", images=picture())["input_ids"][0]


def test_what_else_reads_the_question_gets_the_prefix(dataset: Any) -> None:
    rows = dataset([row("What?", "b")], question_prefix="Q: ").model_rows("train", tiny_instructblip())
    other = dataset([row("Q: What?", "b")]).model_rows("train", tiny_instructblip())
    batch, same = (made.collate([made[0]], pad_token_id=0) for made in (rows, other))
    assert batch.keys() == same.keys()
    assert all(torch.equal(batch[name], same[name]) for name in batch)


@pytest.mark.parametrize("text", ['a "b" {{ c }} {# d #} %}', "日本\n😀\\", "it's"])
def test_any_text_may_be_a_prefix(text: str) -> None:
    processor = tiny_qwen2_5_vl()
    asked = processor.tokenizer.decode(prompt(processor, "What?", question_prefix=text))
    assert f"{text}What?" in asked
    assert question_prefix_of(processor.tokenizer.chat_template) == text
    assert question_prefix_of(None) == ""


def test_a_prefix_is_a_text() -> None:
    with pytest.raises(ValidationError, match="question_prefix"):
        MllmDatasetConfig.model_validate_json(json.dumps({"_target_": "x", "source": "a", "question_prefix": 3}))
