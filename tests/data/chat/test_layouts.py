"""Every layout and format, and what is told of rows that aren't of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chat_rows import talk
from supertrainer.core.errors import ConfigError, DataError
from supertrainer.data.llm import LlmDataset
from supertrainer.data.schema import LlmDatasetConfig

ASKED = talk("Hi", "Hello")


def messages(data: LlmDataset, number: int = 0) -> list[dict[str, Any]]:
    return list(data.conversation("train", number).messages)


def of_file(path: Path, **settings: Any) -> LlmDataset:
    node = {"_target_": "supertrainer.data.llm.LlmDataset", "source": str(path), **settings}
    return LlmDataset(LlmDatasetConfig.model_validate_json(json.dumps(node)), seed=0)


SYSTEM = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("row", "layout", "expected"),
    [
        ({"messages": ASKED}, "messages", ASKED),
        ({"messages": json.dumps(ASKED)}, "messages", ASKED),
        ({"messages": ASKED, "system": "s"}, "messages", [SYSTEM, *ASKED]),
        ({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}, "sharegpt", ASKED),
        ({"instruction": "Hi", "input": "", "output": "Hello"}, "alpaca", ASKED),
        ({"instruction": "Hi", "input": None, "response": "Hello", "system": "s"}, "alpaca", [SYSTEM, *ASKED]),
        ({"instruction": "Add.", "input": "1 2", "output": "3"}, "alpaca", talk("Add.\n\n1 2", "3")),
        ({"prompt": "Hi", "completion": "Hello"}, "prompt_completion", ASKED),
        ({"question": "Hi", "answer": "Hello", "system": "s"}, "prompt_completion", [SYSTEM, *ASKED]),
        ({"conversations": ["Hi", "Hello"]}, "dialogue", ASKED),
        ({"messages": [[{"text": "H", "sender": "x"}, {"text": "i", "sender": "x"}], [{"text": "y", "sender": "z"}]]},
         "dialogue", talk("H\ni", "y")),
        ({"dialog": [{"text": "Hi", "speaker": 7}, {"text": "Hello", "speaker": 3}]}, "dialogue", ASKED),
        ({"text": "Hi"}, "text", [{"role": "text", "content": "Hi"}]),
    ],
)  # fmt: skip
def test_a_layout_is_found_and_read(row: Any, layout: str, expected: Any, dataset: Any) -> None:
    data = dataset([row])
    assert messages(data) == expected
    assert data.load().report.notes[0].startswith(f"Read as {layout} (")
    assert messages(dataset([row], layout=layout)) == expected


def test_answers_inside_a_prompt_are_not_learnt(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    data = dataset(
        [{"prompt": talk("Hi", "Hello", "Bye"), "completion": [{"role": "assistant", "content": "So long"}]}]
    )
    assert learnt(data, make_tokenizer()) == [["So long<|im_end|>"]]


def test_columns_of_other_names(dataset: Any) -> None:
    row = {"q": "Hi", "a": "Hello", "messages": "no conversation"}
    assert messages(dataset([row], columns={"prompt": "q", "completion": "a"})) == ASKED
    assert (
        messages(dataset([{"body": "x", "prompt": "p", "answer": "q"}], columns={"text": "body"}))[0]["content"] == "x"
    )
    with pytest.raises(DataError, match=r"no column 'qq' \(dataset\.columns\.prompt\)[\s\S]*columns\.prompt=q\."):
        dataset([row], columns={"prompt": "qq"}).load()


def test_columns_that_tell_no_layout_are_named(dataset: Any) -> None:
    with pytest.raises(DataError, match=r"layout can't be told from the columns a, b\.[\s\S]*dataset\.layout"):
        dataset([{"a": "x", "b": "y"}]).load()
    with pytest.raises(DataError, match=r"they look like preference"):
        dataset([{"prompt": "x", "chosen": "y", "rejected": "z"}]).load()
    with pytest.raises(DataError, match=r"no column for output of dataset\.layout=alpaca"):
        dataset([{"instruction": "x"}], layout="alpaca").load()


FAULTS = [
    ({"messages": [*ASKED, {"role": "usr", "content": "x"}]}, "messages[2].role is 'usr'"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content is no text but 5"),
    ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " "}]},
     "messages[1].content is empty"),
    ({"messages": []}, "messages is no list of messages but []"),
    ({"messages": "[{"}, "messages is a text that is no JSON"),
    ({"messages": [{"role": "user", "content": "a", "train": True}]}, "only answers can be learnt"),
    ({"messages": [*ASKED, {"role": "assistant", "content": "x", "weight": 0.5}]}, "messages[2].weight is 0.5"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
     "messages[0].tool_calls[0].function.arguments is a text that is no JSON"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]},
     "arguments is no object but [1]"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0] names no function"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content holds a picture"),
    ({"messages": ASKED, "tools": ["add"]}, "tools[0] is no description of a tool but 'add'"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "half of a surrogate pair"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "told"), FAULTS)
def test_a_malformed_row_is_named_with_its_place_and_field(row: Any, told: str, dataset: Any) -> None:
    with pytest.raises(DataError) as error:
        dataset([{"messages": ASKED}, row], layout="messages").load()
    assert f"train.jsonl:2 ({told}" in str(error.value) or told in str(error.value)
    assert "no conversation of their layout (1): train.jsonl:2 (" in str(error.value)


def test_malformed_rows_are_told_together_or_dropped_and_counted(dataset: Any) -> None:
    rows = [{"messages": ASKED}, *(row for row, _ in FAULTS), {"messages": talk("x", "y")}]
    with pytest.raises(DataError, match=rf"no conversation of their layout \({len(FAULTS)}\): train\.jsonl:2"):
        dataset(rows, layout="messages").load()
    left = dataset(rows, layout="messages", on_malformed_rows="drop").load()
    assert left.report.dropped == {"train": {"malformed": len(FAULTS)}}
    assert left["train"]["source_row"][:] == ["train.jsonl:1", f"train.jsonl:{len(rows)}"]


@pytest.mark.parametrize(
    ("layout", "row", "told"),
    [
        ("alpaca", {"instruction": "", "output": "x"}, "instruction is empty"),
        ("alpaca", {"instruction": "x", "output": ""}, "is empty"),
        ("alpaca", {"instruction": "x", "output": "y", "history": ["z"]}, "history[0] is no pair but 'z'"),
        ("prompt_completion", {"prompt": "x", "completion": " "}, "completion is empty"),
        (
            "dialogue",
            {"messages": [{"text": "a", "sender": s} for s in "abc"]},
            "messages[2] is of a third speaker, 'c'",
        ),
        ("dialogue", {"messages": ["a", 3]}, "messages[1] is no text but 3"),
        ("text", {"text": 5}, "text is no text but 5"),
    ],
)
def test_a_malformed_row_of_another_layout(layout: str, row: Any, told: str, dataset: Any) -> None:
    with pytest.raises(DataError) as error:
        dataset([row], layout=layout).load()
    assert told in str(error.value)


def test_a_text_of_white_space_is_a_row_without_text(dataset: Any) -> None:
    with pytest.raises(DataError, match=r"rows without text \(1\): train\.jsonl:2"):
        dataset([{"text": "a"}, {"text": " \n"}]).load()


def test_nested_columns_of_parquet_gain_no_nulls(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    calls = [{"type": "function", "function": {"name": "f", "arguments": given}} for given in ({"x": 1}, {"y": 2})]
    asked = {"role": "user", "content": "a"}
    answers = [{"role": "assistant", "content": "b", "tool_calls": [call]} for call in calls]
    rows = [{"messages": ASKED}, *({"messages": [asked, answer]} for answer in answers)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "train.parquet")
    data = of_file(tmp_path / "train.parquet")
    assert [messages(data, number)[1] for number in range(3)] == [ASKED[1], *answers]


@pytest.mark.parametrize("name", ["train.json", "train.csv", "saved"])
def test_other_formats(name: str, tmp_path: Path) -> None:
    import datasets

    rows = [{"prompt": "Hi", "completion": "Hello"}]
    path = tmp_path / name
    if name == "saved":
        datasets.Dataset.from_list(rows).save_to_disk(path)
    else:
        path.write_text(json.dumps(rows) if name.endswith("json") else "prompt,completion\nHi,Hello\n")
    assert messages(of_file(path)) == ASKED


def test_a_json_file_with_a_row_under_each_name(write: Callable[..., Path]) -> None:
    path = write("t.json", json.dumps({"a": {"messages": ASKED}, "b": {"messages": talk("x", "y")}}))
    data = of_file(path)
    assert messages(data, 1) == talk("x", "y")
    assert data.load()["train"]["source_row"][1] == "t.json b"


@pytest.mark.parametrize(
    "content", ["categories: [food]\nconversations:\n- - Hi\n  - Hello\n", "- messages: [Hi, Hello]\n"]
)
def test_a_yaml_file(content: str, write: Callable[..., Path]) -> None:
    data = of_file(write("t.yml", content))
    assert messages(data) == ASKED
    assert data.load()["train"]["source_row"][0] == "t.yml row 1"


@pytest.mark.parametrize(("content", "told"), [("a: [", "t.yml is no YAML"), ("a: 1\n", "t.yml lists no rows")])
def test_a_broken_yaml_file(content: str, told: str, write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=told):
        of_file(write("t.yml", content)).load()


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("file", [("a\nb\n\n\nc\n", "t.txt")]),
        ("paragraph", [("a\nb", "t.txt:1"), ("c", "t.txt:5")]),
        ("line", [("a", "t.txt:1"), ("b", "t.txt:2"), ("c", "t.txt:5")]),
    ],
)
def test_a_plain_text_file(unit: str, expected: list[tuple[str, str]], write: Callable[..., Path]) -> None:
    data = of_file(write("t.txt", "a\nb\n\n\nc\n"), text_unit=unit)
    found = data.load()["train"]
    assert [messages(data, n)[0]["content"] for n in range(len(found))] == [text for text, _ in expected]
    assert found["source_row"][:] == [place for _, place in expected]


def test_the_same_conversation_again_is_a_repeat(dataset: Any) -> None:
    rows = [{"messages": ASKED}, {"messages": ASKED}, {"messages": talk("Hi", "Hello you")}]
    assert len(dataset(rows, on_repeated_rows="drop").load()["train"]) == 2


def test_an_encoder_is_refused() -> None:
    config = LlmDatasetConfig.model_validate_json('{"_target_": "x.y.LlmDataset", "source": "a/b"}')
    with pytest.raises(ConfigError, match="the model is for regression"):
        LlmDataset(config, seed=0, task="regression")
