"""Rows with pictures as token ids: what is learnt, and that they are the ids that the model's own processor writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.mllm import MllmDataset
from tiny_vision import (
    FAMILIES,
    QWEN,
    picture,
    tiny_blip2,
    tiny_chameleon,
    tiny_gemma3,
    tiny_idefics3,
    tiny_instructblip,
    tiny_llava,
    tiny_paligemma,
    tiny_qwen2_5_vl,
)

# How an answer begins and ends in each family's template.
FRAMES = {
    "idefics3": (" ", "<end_of_utterance>"),
    "llava": (" ", "</s>"),
    "paligemma": ("", "</s>"),
    "qwen2_5_vl": ("", "<|im_end|>"),
    "gemma3": ("", "<|im_end|>"),
    "chameleon": ("", "</s>"),
    "florence2": ("", "</s>"),
    "instructblip": (" ", "</s>"),
    "blip2": (" ", "</s>"),
    "llava_onevision": ("", "<|im_end|>"),
}
_MARKS = "{% elif m['role'] == 'assistant' %}{% generation %}{{ m['content'][0]['text'] }}{% endgeneration %}{% else %}"
MARKED = QWEN.replace("{{ m['content'] }}{% else %}", "{{ m['content'] }}" + _MARKS)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_answers_and_their_ends_are_learnt(family: str, mixed: Any, dataset: Any, learnt: Any) -> None:
    begin, end = FRAMES[family]
    answers = ["A small one.", "Both.", "Hello", "Square."]
    assert learnt(dataset(mixed), FAMILIES[family]()) == [[f"{begin}{answer}{end}"] for answer in answers]


@pytest.mark.parametrize("template", [QWEN, MARKED])
def test_every_answer_of_several_turns_is_learnt(template: str, dataset: Any, learnt: Any) -> None:
    image = {"type": "image"}
    turns = [
        ("user", [image, {"type": "text", "text": "What? "}]),
        ("assistant", "Red."),
        ("user", [{"type": "text", "text": "And"}, image]),
        ("assistant", "Blue."),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    data = dataset([{"images": ["small.png", "wide.png"], "messages": messages}])
    assert learnt(data, tiny_qwen2_5_vl(chat_template=template)) == [["Red.<|im_end|>", "Blue.<|im_end|>"]]


@pytest.mark.parametrize("family", FAMILIES)
def test_no_token_of_a_picture_is_learnt(family: str, mixed: Any, dataset: Any) -> None:
    processor = FAMILIES[family]()
    train_on = "assistant" if family in ("paligemma", "florence2") else "all"
    data = dataset(mixed, train_on=train_on)
    rows = data.encode(data.load()["train"], processor)
    token = data.processor(processor).picture_token
    for row in rows:
        of_picture = np.asarray(row["input_ids"]) == token
        assert (np.asarray(row["labels"])[of_picture] == -100).all()
        if train_on == "all":
            assert sum(label == -100 for label in row["labels"]) == row["picture_tokens"]


def with_pictures(row: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """The messages of a row with its pictures themselves, in parts, as processors take them."""
    images = [Image.open(folder / name).convert("RGB") for name in row["images"]]
    messages = []
    for message in row["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        parts = [{"type": "image", "image": images.pop(0)} if part["type"] == "image" else part for part in parts]
        messages.append({"role": message["role"], "content": parts})
    return messages


@pytest.mark.parametrize("family", ["idefics3", "qwen2_5_vl", "gemma3", "llava_onevision"])
def test_ids_are_those_of_the_processor_given_the_pictures_themselves(
    family: str, mixed: Any, dataset: Any, pictures: Path
) -> None:
    processor = FAMILIES[family]()
    data = dataset(mixed)
    ours = data.encode(data.load()["train"], processor)["input_ids"]
    for ids, row in zip(ours, mixed, strict=True):
        theirs = processor.apply_chat_template(with_pictures(row, pictures), tokenize=True, return_dict=True)
        assert ids == theirs["input_ids"][0]


def test_paligemma_is_given_the_ids_labels_and_types_of_its_own_suffix(
    mixed: Any, dataset: Any, pictures: Path
) -> None:
    processor = tiny_paligemma()
    data = dataset([mixed[0], mixed[3]])
    rows = data.model_rows("train", processor)
    for number, (name, question, answer) in enumerate(
        [("small", "What?", "A small one."), ("square", "And this?", "Square.")]
    ):
        image = Image.open(pictures / f"{name}.png")
        theirs = processor(text=f"<image>{question}", suffix=answer, images=[image], return_tensors="np")
        ours = rows.collate([rows[number]], pad_token_id=0)
        assert set(ours) == set(theirs)
        for key, values in theirs.items():
            assert (ours[key].numpy() == values).all(), key


def test_families_without_a_template_are_asked_as_by_their_own_processors(
    mixed: Any, dataset: Any, pictures: Path
) -> None:
    image = Image.open(pictures / "small.png")
    for make, text in ((tiny_instructblip, "What?"), (tiny_blip2, "What?"), (tiny_chameleon, "<image>What?")):
        processor = make()
        data = dataset([mixed[0]])
        theirs = processor(text=text, images=[image], return_tensors="pt")
        rows = data.model_rows("train", processor)
        batch = rows.collate([rows[0]], pad_token_id=0)
        assert data.prompt("train", 0, processor)["input_ids"].tolist() == theirs.pop("input_ids")[0].tolist()
        theirs.pop("attention_mask")
        for name, values in theirs.items():  # pixels, and the question for the Q-Former
            assert (batch[name] == values).all(), name


@pytest.mark.parametrize("make", [tiny_llava, tiny_gemma3], ids=["written by the tokenizer", "by the template"])
def test_a_row_begins_with_one_token_that_begins_a_text(make: Any, mixed: Any, dataset: Any) -> None:
    data = dataset(mixed)
    for row in data.encode(data.load()["train"], make()):
        assert row["input_ids"][0] == 1
        assert row["input_ids"].count(1) == 1


def test_the_prompt_of_a_generation_is_what_training_sees_before_the_answer(mixed: Any, dataset: Any) -> None:
    for make in FAMILIES.values():
        processor, data = make(), dataset(mixed)
        rows = data.encode(data.load()["train"], processor)
        for number, row in enumerate(rows):
            prompt = data.prompt("train", number, processor)["input_ids"].tolist()
            first = next(place for place, label in enumerate(row["labels"]) if label != -100)
            assert prompt == row["input_ids"][:first]


def test_lengths_are_known_without_decoding(mixed: Any, dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, processor = dataset(mixed, decode_check=0), tiny_qwen2_5_vl()
    monkeypatch.setattr("supertrainer.data.vision.pictures.decode", lambda *_, **__: pytest.fail("decoded"))
    rows = data.model_rows("train", processor)
    assert rows.lengths.tolist() == [len(rows[number]["input_ids"]) for number in range(4)]
    assert data.encode(data.load()["train"], processor)["picture_tokens"] == [6, 28, 0, 18]  # with the frames of each


def test_a_template_that_takes_texts_gets_placeholders(mixed: Any, dataset: Any, learnt: Any) -> None:
    processor = tiny_llava()
    data = dataset([mixed[0]], chat_template="chatml")
    assert learnt(data, processor) == [["A small one.<|im_end|>"]]
    [row] = data.encode(data.load()["train"], processor)
    prompt = "<s><|im_start|>user\n<image><image><image><image>\nWhat?<|im_end|>\n<|im_start|>assistant\n"
    assert processor.tokenizer.decode(row["input_ids"]) == f"{prompt}A small one.<|im_end|>\n"
    assert processor.chat_template == processor.tokenizer.chat_template  # saved with either


def test_a_template_without_a_place_for_pictures_is_refused(mixed: Any, dataset: Any, tmp_path: Path) -> None:
    blind = "{% for m in messages %}{% for p in m['content'] %}{{ p['text'] }}{% endfor %}{% endfor %}"
    data = dataset(mixed)
    with pytest.raises(ConfigError, match="writes no <image> for a picture"):
        data.encode(data.load()["train"], tiny_llava(chat_template=blind))


def test_a_tokenizer_alone_is_refused(mixed: Any, dataset: Any) -> None:
    data = dataset(mixed)
    with pytest.raises(ConfigError, match="has no tokenizer of its own"):
        data.encode(data.load()["train"], tiny_llava().tokenizer)


def test_a_placeholder_written_out_in_a_text_is_named_with_its_row(mixed: Any, dataset: Any) -> None:
    parts = [{"type": "image"}, {"type": "text", "text": "What does <image> mean?"}]
    mixed[0]["messages"][0]["content"] = parts
    data = dataset(mixed)
    with pytest.raises(DataError, match=r"(?s)train\.jsonl:1.*the text has 2 times <image> for 1 pictures"):
        data.encode(data.load()["train"], tiny_llava())


def test_a_picture_that_the_processor_refuses_is_named_with_its_row(mixed: Any, dataset: Any, pictures: Path) -> None:
    picture(900, 4).save(pictures / "small.png")
    data = dataset(mixed)
    with pytest.raises(DataError, match=r"(?s)train\.jsonl:1.*aspect ratio must be smaller than 200"):
        data.encode(data.load()["train"], tiny_qwen2_5_vl())


@pytest.mark.parametrize(("policy", "kept"), [("right", ">User: What <"), ("left", "Small.")])
def test_text_is_cut_and_pictures_never(policy: str, kept: str, dataset: Any) -> None:
    before, after = ({"type": "text", "text": words} for words in ("What is " + "that " * 20, "and so on?"))
    content = [before, {"type": "image"}, after]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "Small."}]
    rows = [{"images": ["wide.png"], "messages": messages}]
    processor = tiny_idefics3()
    whole = dataset(rows)
    [row] = whole.encode(whole.load()["train"], processor)
    token, count = whole.processor(processor).picture_token, row["picture_tokens"]
    data = dataset(rows, max_length=count + 12, on_too_long=policy, on_nothing_to_learn="drop", train_on="all")
    [cut] = data.encode(data.load()["train"], processor)
    assert len(cut["input_ids"]) == count + 12
    assert cut["input_ids"].count(token) == row["input_ids"].count(token)
    assert kept in processor.tokenizer.decode(cut["input_ids"])
    batch = data.model_rows("train", processor)
    batch.collate([batch[0]], pad_token_id=0)  # as many as the processor writes
    short = dataset(rows, max_length=count, on_too_long=policy)
    with pytest.raises(
        DataError, match=rf"pictures alone fill dataset\.max_length={count} tokens \(1\): train\.jsonl:1"
    ):
        short.encode(short.load()["train"], processor)


def test_rows_that_are_too_long_are_named_by_default(mixed: Any, dataset: Any) -> None:
    data = dataset(mixed, max_length=50)
    with pytest.raises(DataError, match=r"rows longer than dataset\.max_length=50 tokens \(3\)"):
        data.encode(data.load()["train"], tiny_idefics3())


def test_few_words_beside_many_picture_tokens_are_enough_to_learn(dataset: Any) -> None:
    rows = [{"image": "wide.png", "question": "?", "answer": "y"}]
    data = dataset(rows, min_trained_share=0.1)
    [row] = data.encode(data.load()["train"], tiny_idefics3())
    learnt = sum(label != -100 for label in row["labels"])
    assert learnt / row["length"] < 0.1 < learnt / (row["length"] - row["picture_tokens"])


def test_cached_ids_follow_the_sizes_of_pictures(mixed: Any, dataset: Any, pictures: Path, tmp_path: Path) -> None:
    def run() -> tuple[Any, int]:
        data = dataset(mixed, cache=str(tmp_path / "cache"))
        rows = data.encode(data.load()["train"], tiny_qwen2_5_vl())
        return rows["input_ids"][:], len(list((tmp_path / "cache").iterdir()))

    first, files = run()
    assert run() == (first, files) == (first, 1)
    picture(40, 40).save(pictures / "small.png")
    other, files = run()
    assert files == 2
    assert len(other[0]) > len(first[0])


def test_a_preview_counts_the_tokens_of_pictures(mixed: Any, dataset: Any) -> None:
    data: MllmDataset = dataset(mixed)
    view = data.views("train", 2, tiny_qwen2_5_vl())[1]
    assert [(piece.text, piece.learnt) for piece in view.pieces] == [
        ("<|im_start|>user\n<|vision_start|>", False),
        ("[picture: 10 tokens]", False),
        ("<|vision_end|>or<|vision_start|>", False),
        ("[picture: 14 tokens]", False),
        ("<|vision_end|>?<|im_end|>\n<|im_start|>assistant\n", False),
        ("Both.<|im_end|>", True),
        ("\n", False),
    ]
    assert json.loads(data.load()["train"][1]["messages"])[1]["content"] == "Both."


def test_the_space_that_the_prompt_ends_before_belongs_to_a_marked_answer(dataset: Any, learnt: Any) -> None:
    """Else the first word of an answer, which vocabularies write with its space, would not be learnt."""
    template = (
        "{% for m in messages %}{{ m['role'] | upper + ': ' }}{% for p in m['content'] %}{% if p['type'] == 'image' %}"
        "<image>\n{% elif m['role'] == 'user' %}{{ p['text'] + ' ' }}{% else %}{% generation %}{{ p['text'] + ' ' }}"
        "{% endgeneration %}{% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
    )
    data = dataset([{"image": "small.png", "question": "Red?", "answer": "yes"}])
    assert learnt(data, tiny_llava(chat_template=template)) == [[" yes</s>"]]
