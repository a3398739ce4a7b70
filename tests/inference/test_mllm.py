"""Answers to questions about pictures: in batches as one by one, as transformers gives them, and over a whole file."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny_vision
from supertrainer.core.errors import DataError
from supertrainer.data.vision.processing import PictureProcessor
from supertrainer.data.vision.prompts import PicturePrompts
from supertrainer.inference.ends import end_of_turn
from supertrainer.inference.engines.hf import HfEngine
from supertrainer.inference.engines.schema import HfEngineConfig
from supertrainer.inference.generation import Answer, generate
from supertrainer.inference.mllm import MllmInferencer
from supertrainer.inference.schema import GenerationConfig, MllmColumns, MllmInferencerConfig
from supertrainer.models.processors import save_reader
from tiny_mllm import picture, tiny_mllm, tiny_processor
from tiny_picture_prompts import tiny_asked

LENGTH = 6
MARKED = "<image>w1 then <image>"


def answers(model: Any, prompts: PicturePrompts, *, batch_size: int = 6) -> list[Answer]:
    config = GenerationConfig(max_new_tokens=LENGTH)
    tokenizer = prompts.processor.tokenizer
    how: dict[str, Any] = {"config": config, "batch_size": batch_size, "batch_of": prompts.batch}
    found = dict(generate(model, tokenizer, prompts.ids, **how))
    return [found[number][0] for number in range(len(prompts.prompts))]


@pytest.mark.parametrize(
    "family", ["idefics3", "llava", "llava_onevision", "gemma3", "paligemma", "qwen2_5_vl", "florence2"]
)
def test_a_batch_is_its_rows_one_by_one_and_transformers_own(family: str) -> None:
    """Rows without, with one and with two pictures of several sizes, padded on the left (an encoder's on the right)."""
    model, prompts = tiny_asked(family)
    together = [answer.tokens for answer in answers(model, prompts)]
    assert together == [answers(model, prompts.some([number]))[0].tokens for number in range(len(together))]
    for number, tokens in enumerate(together):
        inputs = prompts.batch([number])
        how = (
            {"forced_bos_token_id": 2} if family == "florence2" else {}
        )  # a token of its own, behind its decoder's first
        new = LENGTH + len(how)
        whole = model.generate(**inputs, **how, max_new_tokens=new, do_sample=False, pad_token_id=0)
        before = 2 if family == "florence2" else inputs["input_ids"].shape[1]
        assert tuple(whole[0, before:].tolist()) == tokens


def test_every_token_of_the_list_of_end_tokens_ends_an_answer() -> None:
    model, prompts = tiny_asked("idefics3")
    free = answers(model, prompts)
    second = free[2].tokens[1]
    assert free[2].finish == "length"
    model.generation_config.eos_token_id = [3, second]
    ended = answers(model, prompts)
    assert all(second not in answer.tokens[:-1] for answer in ended)
    assert (ended[2].finish, ended[2].ended, ended[2].tokens[-1]) == ("stop", True, second)


@pytest.mark.parametrize(
    ("family", "end"),
    [
        ("idefics3", "<end_of_utterance>"), ("llava", None), ("paligemma", "</s>"), ("qwen2_5_vl", "<|im_end|>"),
        ("gemma3", "<|im_end|>"), ("chameleon", "</s>"), ("florence2", "</s>"), ("instructblip", "</s>"),
        ("blip2", "</s>"),
        ("llava_onevision", "<|im_end|>"),
    ],
)  # fmt: skip
def test_what_a_template_begins_a_text_with_ends_no_answer(family: str, end: str | None) -> None:
    """Templates that take content in parts write nothing of a text, and what they begin with isn't behind an answer."""
    reading = PictureProcessor(tiny_vision.FAMILIES[family](), chat_template=None)
    found = end_of_turn(reading.tokenizer)
    assert (None if found is None else reading.tokenizer.convert_ids_to_tokens(found)) == end


@pytest.mark.parametrize(
    ("family", "place", "rows"), [("llava", 1, (0, 1, 4)), ("qwen2_5_vl", 0, (0, 3)), ("florence2", 0, (0, 1))]
)
def test_rows_that_go_on_alone_keep_their_positions(family: str, place: int, rows: tuple[int, ...]) -> None:
    """Once half of a batch has ended its rows leave it."""
    model, prompts = tiny_asked(family)
    free = answers(model, prompts)
    model.generation_config.eos_token_id = [3, *(free[row].tokens[place] for row in rows)]
    together = [answer.tokens for answer in answers(model, prompts)]
    assert sum(len(tokens) <= 2 for tokens in together) >= 3
    assert max(map(len, together)) > 3
    assert together == [answers(model, prompts.some([number]))[0].tokens for number in range(len(together))]


def test_blank_pictures_change_nothing_but_rows_with_pictures() -> None:
    model, prompts = tiny_asked("llava")
    seen, blank = answers(model, prompts), answers(model, prompts.blank())
    same = [one.tokens == other.tokens for one, other in zip(seen, blank, strict=True)]
    assert same == [True, False, False, False, True, False]


def trained(directory: Path) -> Path:
    """A tiny model with a template and its processor."""
    processor = tiny_processor("llava")
    processor.chat_template = processor.tokenizer.chat_template = tiny_vision.LLAVA
    tiny_mllm("llava").save_pretrained(directory)
    save_reader(processor, directory)
    return directory


def inferencer(directory: Path, rows: Sequence[dict[str, Any]], **keys: Any) -> MllmInferencer:
    path = directory / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    engine = HfEngine(HfEngineConfig(_target_="x"), source=trained(directory / "model"))
    generation = GenerationConfig(max_new_tokens=LENGTH)
    return MllmInferencer(
        MllmInferencerConfig(_target_="x", input=str(path), generation=generation, **keys), engine=engine
    )


def test_a_file_is_answered_row_by_row(tmp_path: Path) -> None:
    picture(1).save(tmp_path / "a.png")
    picture(3, 42).save(tmp_path / "b.png")
    turns = [{"role": "user", "content": "<image>\nw1 w2"}]
    rows = [
        {"image": "a.png", "question": "w1 w2"},
        {"image": None, "question": "w1 w2"},
        {"image": ["a.png", "b.png"], "question": MARKED},
        {"image": "b.png", "question": "w1 w2"},
    ]
    result = inferencer(tmp_path, rows).run(directory=tmp_path)
    written = [json.loads(line) for line in result.output.read_text(encoding="utf-8").splitlines()]
    assert [{key: row[key] for key in ("image", "question")} for row in written] == rows
    tokens = [row["prompt_tokens"] for row in written]
    assert tokens[0] == tokens[3] == tokens[1] + 4 + 1  # a picture is four tokens, and the template breaks the line
    assert written[0]["predicted"] != written[1]["predicted"]
    talks = [{"photo": "a.png", "messages": turns}, {"photo": "b.png", "messages": json.dumps(turns)}]
    columns = MllmColumns(images=("photo",))
    again = inferencer(tmp_path, talks, columns=columns, output=str(tmp_path / "talks.jsonl"))
    found = again.run(directory=tmp_path).output.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["predicted"] for line in found] == [written[0]["predicted"], written[3]["predicted"]]


def test_messages_of_parquet_are_read_and_special_tokens_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    picture(1).save(tmp_path / "a.png")
    parts = [{"type": "image"}, {"type": "text", "text": "w1 </s>"}]
    asked = inferencer(tmp_path, [{"image": "a.png", "messages": [{"role": "user", "content": parts}]}])
    with caplog.at_level(logging.INFO):
        asked.run(directory=tmp_path)
    table = pa.Table.from_pylist([json.loads((tmp_path / "asked.jsonl").read_text())])
    pq.write_table(table, tmp_path / "a.parquet")  # whose objects have every field, null where they have none
    assert table.to_pylist()[0]["messages"][0]["content"][0] == {"type": "image", "text": None}
    config = asked.config.model_copy(update={"input": str(tmp_path / "a.parquet")})
    found = MllmInferencer(config, engine=asked.engine).run(directory=tmp_path)
    [line] = (tmp_path / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    assert pq.read_table(found.output).to_pylist()[0]["predicted"] == json.loads(line)["predicted"]
    assert any(text.endswith("read as such: asked.jsonl:1 (</s>).") for text in caplog.messages)


def test_unusable_pictures_are_told_with_their_rows_before_the_first_answer(tmp_path: Path) -> None:
    picture(1).save(tmp_path / "a.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) - 30])
    rows = [
        {"image": "a.png", "question": "w1"},
        {"image": "gone.png", "question": "w1"},
        {"image": "cut.png", "question": "w1"},
        {"image": "a.png", "question": f"{MARKED} w2"},
        {"image": "a.png", "question": "w1 " * 200},
    ]
    asked = inferencer(tmp_path, rows)
    with pytest.raises(DataError) as raised:
        asked.run(directory=tmp_path)
    told = str(raised.value)
    assert all(part in told for part in ("asked.jsonl:2", "gone.png", "asked.jsonl:3", "cut.png is broken"))
    assert "asked.jsonl:4: question says of 2 places" in told
    assert "asked.jsonl:5 (" in told
    assert asked.engine.tokens == 0
    assert not (tmp_path / "predictions.jsonl").exists()


def test_a_missing_column_of_pictures_is_told(tmp_path: Path) -> None:
    asked = inferencer(tmp_path, [{"question": "w1"}], columns=MllmColumns(images=("photo",)))
    with pytest.raises(DataError, match=r"no column 'photo'.*\n?.*inferencer\.columns\.images"):
        asked.run(directory=tmp_path)
