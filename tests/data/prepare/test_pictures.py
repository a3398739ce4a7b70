"""Pictures with labels, captions, questions or conversations come out as rows with paths."""

from __future__ import annotations

import json

import pytest

PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


def told(question: str, answer: str) -> list[dict[str, object]]:
    return [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]},
        {"role": "assistant", "content": [{"type": "text", "text": answer}]},
    ]


def test_a_folder_per_class(prepare) -> None:
    outcome = prepare({"cat/1.png": PNG, "dog/1.png": PNG + b"1"}, "--question", "Which animal?")
    assert outcome.rows()[0] == {
        "images": ["../in/cat/1.png"],
        "messages": told("Which animal?", "cat"),
        "label": "cat",
    }


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.csv", "file_name,text\na.png,A cat.\n"),
        ("metadata.jsonl", '{"file_name": "a.png", "caption": "A cat."}\n'),
    ],
)
def test_captions(prepare, name, content) -> None:
    outcome = prepare({name: content, "a.png": PNG})
    assert outcome.rows() == [{"images": ["../in/a.png"], "messages": told("Describe the picture.", "A cat.")}]
    assert outcome.report["ignored"] == []


def test_questions_with_answers(prepare) -> None:
    row = {"image": "a.png", "question": "How many?", "answer": 2}
    assert prepare({"x.json": json.dumps([row]), "a.png": PNG}).rows()[0]["messages"] == told("How many?", "2")
    pairs = [{"question": "Red?", "answer": "no"}, {"question": "Blue?", "answers": ["yes", "sure"]}]
    outcome = prepare({"x.json": json.dumps([{"image": "a.png", "qa": pairs}]), "a.png": PNG})
    assert [row["messages"] for row in outcome.rows()] == [told("Red?", "no"), told("Blue?", "yes")]


def test_llava(prepare) -> None:
    talk = [{"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "A cat."}]
    outcome = prepare(
        {"llava.json": json.dumps([{"id": "1", "image": "p/a.png", "conversations": talk}]), "p/a.png": PNG}
    )
    assert outcome.rows() == [{"images": ["../in/p/a.png"], "messages": told("What is it?", "A cat.")}]


def test_a_conversation_without_a_mark_shows_the_picture_first(prepare) -> None:
    talk = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "A cat."}]
    outcome = prepare({"x.jsonl": json.dumps({"images": ["a.png"], "messages": talk}), "a.png": PNG})
    assert outcome.rows()[0]["messages"] == told("What is it?", "A cat.")


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("gone.png", "is not there (--images: the folder of the pictures)"),
        ("text.png", "is no picture: it begins with"),
        ("https://example.org/a.png", "nothing is fetched"),
        (None, "is missing"),
    ],
)
def test_pictures_that_can_not_be_used(prepare, image, why) -> None:
    rows = [{"image": "a.png", "caption": "x"}, {"image": image, "caption": "y"}]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    outcome = prepare({"x.jsonl": content, "a.png": PNG, "text.png": "words"})
    (example,) = outcome.report["dropped"]["malformed"]["examples"]
    assert (example["row"], example["field"]) == (2, "image")
    assert why in example["why"]


def test_marks_without_pictures_are_malformed(prepare) -> None:
    talk = [{"from": "human", "value": "<image><image> Compare."}, {"from": "gpt", "value": "Same."}]
    rows = [{"image": "a.png", "conversations": talk}]
    assert "has 2 <image> marks for 1 pictures" in prepare({"x.json": json.dumps(rows), "a.png": PNG}).text


def test_another_folder_and_absolute_paths(prepare, tmp_path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/a.png").write_bytes(PNG)
    words = ("--images", str(tmp_path / "pictures"), "--image-paths", "absolute")
    outcome = prepare('{"image": "a.png", "caption": "A cat."}', *words, name="x.jsonl")
    assert outcome.rows()[0]["images"] == [str(tmp_path / "pictures/a.png")]


def test_questions_on_one_picture_stay_in_one_split(prepare) -> None:
    files: dict[str, str | bytes] = {f"{n}.png": PNG for n in range(10)}
    rows = [{"image": f"{n % 10}.png", "question": f"q{n}", "answer": "a"} for n in range(40)]
    outcome = prepare({"x.json": json.dumps(rows), **files}, split=True)
    seen = {split: {row["images"][0] for row in outcome.rows(split)} for split in ("train", "validation", "test")}
    assert [len(pictures) for pictures in seen.values()] == [8, 1, 1]
    assert len(set.union(*seen.values())) == 10
