"""The layouts of a file's rows: literal rows in, conversations and pictures out; every fault with its row and field."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from supertrainer.core.errors import DataError
from supertrainer.data.mllm import MllmDataset
from supertrainer.data.schema import MllmDatasetConfig
from tiny_vision import as_bytes, picture

IMAGE = {"type": "image"}


def first(data: MllmDataset) -> tuple[list[Any], list[str], Any]:
    """Messages of the first row as (role, content), the names of its pictures, its type."""
    row = data.load()["train"][0]
    messages = [(message["role"], message["content"]) for message in json.loads(row["messages"])]
    return messages, [Path(name).name for name in row["pictures"]], row["question_type"]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


LLAVA = [{"from": "human", "value": "<image>\nRed?"}, {"from": "gpt", "value": "yes"}]
IN_A_PART = [{"type": "image", "path": "wide.png"}, text("Red?")]
OPEN_AI = [text("Red"), {"type": "image_url", "image_url": {"url": "wide.png"}}]


def turn(content: Any, answer: Any = "yes") -> list[dict[str, Any]]:
    return [{"role": "user", "content": content}, {"role": "assistant", "content": answer}]


@pytest.mark.parametrize(
    ("row", "content", "images"),
    [
        ({"image": "small.png", "question": "Red?", "answer": "yes"}, [IMAGE, text("Red?")], ["small.png"]),
        (
            {"images": ["small.png", "wide.png"], "question": "Same?", "answer": ["yes", "no"]},
            [IMAGE, IMAGE, text("Same?")],
            ["small.png", "wide.png"],
        ),
        ({"image": "small.png", "question": "<image>\nRed?", "answer": "yes"}, [IMAGE, text("Red?")], ["small.png"]),
        ({"question": "Red?", "answer": "yes"}, "Red?", []),
        ({"image": "small.png", "text": "yes"}, [IMAGE, text("Describe the picture.")], ["small.png"]),
        ({"image": "small.png", "conversations": LLAVA}, [IMAGE, text("Red?")], ["small.png"]),
        ({"messages": turn(IN_A_PART)}, [IMAGE, text("Red?")], ["wide.png"]),
        ({"messages": turn(OPEN_AI, [text("yes")])}, [text("Red"), IMAGE], ["wide.png"]),
    ],
    ids=["question", "two pictures", "mark in a question", "no picture", "caption", "LLaVA", "in a part", "OpenAI"],
)
def test_a_layout_is_told_and_read(row: dict[str, Any], content: Any, images: Any, dataset: Any) -> None:
    messages, found, _ = first(dataset([row]))
    assert messages == [("user", content), ("assistant", "yes")]
    assert found == images


def test_the_layout_is_named_in_the_report(dataset: Any) -> None:
    data = dataset([{"image": "small.png", "question": "Red?", "answer": "yes"}, {"question": "Hi", "answer": "Hello"}])
    notes = data.load().report.notes
    assert "Read as question_answer (columns question and answer): train.jsonl." in notes
    assert "Pictures of a row: 0 in 1, 1 in 1: train." in notes


def test_columns_may_have_other_names(dataset: Any) -> None:
    columns = {"images": "photo", "question": "q", "answer": "a", "question_type": "kind"}
    row = {"photo": "small.png", "q": "How many?", "a": 3, "kind": "count"}
    messages, images, kind = first(dataset([row], columns=columns))
    assert (messages[1], images, kind) == (("assistant", "3"), ["small.png"], "count")


def test_pictures_without_a_place_may_go_first(dataset: Any) -> None:
    asked = [{"role": "system", "content": "Be brief"}, *turn("Red?")]
    messages, _, _ = first(dataset([{"image": "small.png", "messages": asked}], without_places="first"))
    assert messages[:2] == [("system", "Be brief"), ("user", [IMAGE, text("Red?")])]


ADDRESS = "https://e.org/a.png"


def talk(images: Any, *turns: Any) -> dict[str, Any]:
    return {"images": images, "messages": turn(*turns)}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            talk(["small.png"], [IMAGE, IMAGE, text("?")]),
            "messages says of 2 places where a picture stands, and images holds 1 picture",
        ),
        (talk(["small.png"], "Red?"), "0 places where a picture stands, and images holds 1 picture; dataset.without_"),
        (talk([], "<image> Red?"), "1 places where a picture stands, and images holds 0 pictures"),
        (talk(["small.png"], "Red?", [IMAGE]), "messages[1].content holds a picture: an answer is text"),
        (talk([], [{"type": "video"}]), "messages[0].content[0] is neither a text nor an image"),
        (talk([], [{**IMAGE, "path": "small.png"}, IMAGE]), "has 2 pictures in its parts, and only 1 say which"),
        ({"image": "small.png", "question": "<image><image>", "answer": "yes"}, "question says of 2 places"),
        (
            {"image": ADDRESS, "question": "Red?", "answer": "yes"},
            f"image '{ADDRESS}' is an address; download it first",
        ),
        ({"image": 7, "question": "Red?", "answer": "yes"}, "image is the number 7"),
        ({"image": "Qk0" * 100, "question": "Red?", "answer": "yes"}, "image is no path but a text of 300 characters"),
        (
            {"images": ["small.png", "wide.png"], "messages": turn(IN_A_PART)},
            "names 1 pictures in its parts, and images holds 2: which do you mean?",
        ),
        ({"image": "small.png", "question": "Red?", "answer": None}, "answer is missing"),
        ({"image": "small.png", "question": "Red?", "answer": " "}, "answer is empty"),
    ],
)
def test_a_malformed_row_is_named_with_its_number_and_field(row: dict[str, Any], said: str, dataset: Any) -> None:
    good = {"question": "Blue?", "answer": "no"} if "question" in row else {"messages": turn("Blue?")}
    with pytest.raises(DataError) as caught:
        dataset([good, row]).load()
    assert "rows that are no conversation of their layout (1): train.jsonl:2 (" in str(caught.value)
    assert said in str(caught.value)


def question(image: Any) -> dict[str, Any]:
    return {"image": image, "question": "Red?", "answer": "yes"}


@pytest.fixture
def faulty(pictures: Path) -> dict[str, str]:
    """Pictures that can't be used, with what is said of them."""
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    content = as_bytes(Image.fromarray(noise), "JPEG")
    (pictures / "cut.jpg").write_bytes(content[: len(content) // 2])
    (pictures / "words.png").write_text("no picture")
    Image.new("L", (300, 200)).save(pictures / "large.png")
    return {
        "gone.png": "is not there",
        "cut.jpg": "is broken: ",
        "words.png": "is no picture: it begins with b'no pictu'",
        "large.png": "is too large: 300 × 200 pixels, 60,000 of at most 10,000 (dataset.max_pixels)",
    }


def test_every_unusable_picture_is_named_with_row_and_field_before_training(
    faulty: dict[str, str], dataset: Any, pictures: Path
) -> None:
    rows = [question("small.png"), *(question(["small.png", name]) for name in faulty)]
    with pytest.raises(DataError) as caught:
        dataset(rows, max_pixels=10_000).load()
    told = str(caught.value)
    assert "rows with pictures that can't be used (4)" in told
    for number, (name, said) in enumerate(faulty.items(), start=2):
        assert f"{pictures / name} {said}" in told
        assert f"train.jsonl:{number} (" in told
    assert f"train.jsonl:2 (image[1] {pictures / 'gone.png'} is not there)" in told


def test_what_is_no_file_is_never_opened(dataset: Any, pictures: Path) -> None:
    (pictures / "folder.png").mkdir()
    os.mkfifo(pictures / "pipe.png")  # to open it would be to wait for a writer
    with pytest.raises(DataError) as caught:
        dataset([question("small.png"), question("folder.png"), question("pipe.png")]).load()
    for name, said in (("folder.png", "is a directory"), ("pipe.png", "is no plain file")):
        assert f"{pictures / name} {said}" in str(caught.value)


def test_rows_with_unusable_pictures_may_be_dropped_and_are_counted(faulty: dict[str, str], dataset: Any) -> None:
    rows = [question("small.png"), *(question(name) for name in faulty)]
    splits = dataset(rows, max_pixels=10_000, on_broken_pictures="drop").load()
    assert len(splits["train"]) == 1
    assert splits.report.dropped == {"train": {"with pictures that can't be used": len(faulty)}}


def test_the_check_by_decoding_takes_as_many_pictures_as_are_set(faulty: dict[str, str], dataset: Any) -> None:
    rows = [question("small.png"), question("cut.jpg"), question("square.png")]
    assert len(dataset(rows, decode_check=2).load()["train"]) == 3  # the first and the last
    with pytest.raises(DataError, match=r"cut\.jpg is broken"):
        dataset(rows, decode_check=None).load()


def test_pictures_are_looked_up_in_another_folder_or_by_a_number(dataset: Any, pictures: Path) -> None:
    (pictures / "photos").mkdir()
    (pictures / "small.png").rename(pictures / "photos" / "0007.png")
    by_root = dataset([question("0007.png")], image_root=str(pictures / "photos")).load()["train"][0]
    by_number = dataset([question(7)], image_pattern="photos/{:04d}.png").load()["train"][0]
    assert by_root["pictures"] == by_number["pictures"] == [f"file:{pictures}/photos/0007.png"]


def test_the_same_question_about_another_picture_is_no_repeat(dataset: Any, pictures: Path) -> None:
    (pictures / "copy.png").write_bytes((pictures / "small.png").read_bytes())
    data = dataset([question(name) for name in ("small.png", "wide.png", "copy.png")], on_repeated_rows="drop")
    assert data.load().report.dropped == {"train": {"repeated text": 1}}


def test_a_picture_is_in_one_split_only(dataset: Any, pictures: Path) -> None:
    names = [f"{number}.png" for number in range(10)]
    for number, name in enumerate(names):
        picture(8, 8, (number, 0, 0)).save(pictures / name)
    rows = [{"image": name, "question": f"{n}?", "answer": "yes"} for name in names for n in range(4)]
    splits = dataset(rows, splits={"train": None, "validation": 0.3}).load()
    of = [{row["pictures"][0] for row in splits[split]} for split in ("train", "validation")]
    assert len(of[1]) == 3
    assert not of[0] & of[1]


@pytest.mark.parametrize("kind", ["parquet", "saved", "arrow"])
def test_bytes_stay_in_arrow(kind: str, tmp_path: Path) -> None:
    import datasets

    contents = [as_bytes(picture(20 + number, 12)) for number in range(3)]
    rows = {
        "image": [{"bytes": content, "path": None} for content in contents],
        "question": ["Red?", "Blue?", "Green?"],
        "answer": [0, 1, 0],
    }
    names = datasets.ClassLabel(names=["no", "yes"])
    features = {"image": datasets.Image(), "question": datasets.Value("string"), "answer": names}
    table = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    path = tmp_path / {"parquet": "train.parquet", "saved": "set", "arrow": "train.arrow"}[kind]
    if kind == "parquet":
        table.to_parquet(path)
    elif kind == "saved":
        table.save_to_disk(path)
    else:
        with path.open("wb") as file:
            import pyarrow as pa

            data = table.with_format("arrow")[:]
            with pa.ipc.new_stream(file, data.schema) as writer:
                writer.write_table(data)
    node = {"_target_": "supertrainer.data.mllm.MllmDataset", "source": str(path)}
    data = MllmDataset(MllmDatasetConfig.model_validate_json(json.dumps(node)), seed=0)
    rows = data.load()["train"]
    assert [row["sizes"] for row in rows] == [[20, 12], [21, 12], [22, 12]]
    assert data.conversation("train", 1).answer_text == "yes"
    assert data.store.content(rows[2]["pictures"][0]) == contents[2]
    assert not data.store._kept  # no copy


def test_pictures_in_text_are_decoded_once_and_kept_as_files(dataset: Any) -> None:
    written = base64.b64encode(as_bytes(picture(33, 12))).decode()
    data = dataset([question(written), question([f"data:image/png;base64,{written}", "small.png"])])
    assert [row["sizes"] for row in data.load()["train"]] == [[33, 12], [33, 12, 20, 12]]


def test_a_change_of_a_picture_changes_the_fingerprint(dataset: Any, pictures: Path) -> None:
    before = dataset([question("small.png")]).fingerprint()["pictures"]
    picture(20, 12, (1, 2, 3)).save(pictures / "small.png")
    assert dataset([question("small.png")]).fingerprint()["pictures"] != before


def test_the_files_of_easy_vqa_are_read_in_place(tmp_path: Path) -> None:
    import yaml

    train = [["is it red?", "yes", 3], ["what color?", "teal", 3], ["which?", "circle", 4]]
    for split, rows in (("train", train), ("test", [["is it blue?", "no", 0]])):
        (tmp_path / split / "images").mkdir(parents=True)
        (tmp_path / split / "questions.json").write_text(json.dumps(rows))
        for number in (0, 3, 4):
            picture(64, 64, (number * 9, len(split), 0)).save(tmp_path / split / "images" / f"{number}.png")
    node = yaml.safe_load((Path(__file__).parents[3] / "configs/dataset/mllm/easy_vqa.yaml").read_text())
    node |= {"source": str(tmp_path), "splits": {**node["splits"], "validation": None}}
    splits = MllmDataset(MllmDatasetConfig.model_validate_json(json.dumps(node)), seed=0).load()
    assert [row["question_type"] for row in splits["train"]] == ["yes/no", "colour", "shape"]
    assert [row["pictures"] for row in splits["test"]] == [[f"file:{tmp_path}/test/images/0.png"]]


def test_a_table_of_texts_lists_pictures_as_json(pictures: Path) -> None:
    table = 'image,question,answer\nsmall.png,Red?,yes\n"[""small.png"", ""wide.png""]",Same?,no\n,Hi,Hello\n'
    (pictures / "train.csv").write_text(table)
    node = {"_target_": "supertrainer.data.mllm.MllmDataset", "source": str(pictures / "train.csv")}
    rows = MllmDataset(MllmDatasetConfig.model_validate_json(json.dumps(node)), seed=0).load()["train"]
    assert [[Path(name).name for name in row["pictures"]] for row in rows] == [
        ["small.png"],
        ["small.png", "wide.png"],
        [],
    ]
