"""Conversations, prompts with answers, and preferences in their usual forms."""

from __future__ import annotations

import json

import pytest

USER, ANSWER = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hello."}
SYSTEM = {"role": "system", "content": "Be kind."}


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    "row",
    [
        {"messages": [SYSTEM, USER, ANSWER]},
        {
            "conversations": [{"from": "human", "value": "Hi?"}, {"from": "gpt", "value": "Hello."}],
            "system": "Be kind.",
        },
        {"instruction": "Hi?", "input": "", "output": "Hello.", "system": "Be kind."},
    ],
)
def test_forms_of_a_conversation(prepare, row) -> None:
    assert prepare(lines(row), name="x.jsonl").rows() == [{"messages": [SYSTEM, USER, ANSWER]}]


def test_alpaca_with_input_and_history(prepare) -> None:
    row = {"instruction": "Sum.", "input": "1 2", "output": "3", "history": [["Hi?", "Hello."]]}
    expected = [USER, ANSWER, {"role": "user", "content": "Sum.\n\n1 2"}, {"role": "assistant", "content": "3"}]
    assert prepare(lines(row), name="x.jsonl").rows() == [{"messages": expected}]


def test_alpaca_as_prompt_and_completion(prepare) -> None:
    outcome = prepare(lines({"instruction": "Sum.", "input": "1 2", "output": "3"}), "--task", "prompt_completion",
                      name="x.jsonl")  # fmt: skip
    assert outcome.rows() == [{"prompt": "Sum.\n\n1 2", "completion": "3"}]


def test_lists_of_texts_take_turns(prepare) -> None:
    outcome = prepare("categories:\n- greetings\nconversations:\n- - Hi?\n  - Hello.\n", name="x.yml")
    assert outcome.rows() == [{"messages": [USER, ANSWER]}]


def test_an_item_that_is_no_conversation_is_one_malformed_row(prepare) -> None:
    outcome = prepare("conversations:\n- - Hi?\n  - Hello.\n- what\n- - Who?\n  - Me.\n", name="x.yml")
    assert len(outcome.rows()) == 2
    assert outcome.report["dropped"]["malformed"]["examples"][0]["row"] == 2


@pytest.mark.parametrize(
    ("messages", "field", "why"),
    [
        ([ANSWER], "messages[0]", "is of assistant at the beginning"),
        ([USER, USER, ANSWER], "messages[1]", "is of user after user"),
        ([USER], "messages[0]", "no answer follows"),
        ([USER, SYSTEM], "messages[1]", "is of system after user"),
        ([{"role": "narrator", "content": "x"}], "messages[0].role", "is 'narrator', none of"),
        ([USER, {"role": "assistant"}], "messages[1].content", "is missing"),
        ([USER, {"role": "assistant", "content": 3}], "messages[1].content", "is no text but 3"),
        ([], "messages", "is no list of messages"),
    ],
)
def test_conversations_that_are_wrong(prepare, messages, field, why) -> None:
    outcome = prepare(lines({"messages": [USER, ANSWER]}, {"messages": messages}), name="x.jsonl")
    (example,) = outcome.report["dropped"]["malformed"]["examples"]
    assert (example["row"], example["field"]) == (2, field)
    assert why in example["why"]


def test_turns_as_they_are(prepare) -> None:
    outcome = prepare(lines({"messages": [ANSWER, USER]}), "--turns", "as_is", name="x.jsonl")
    assert outcome.rows() == [{"messages": [ANSWER, USER]}]


def test_calls_of_tools_are_kept(prepare) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    result = {"role": "tool", "content": "4", "tool_call_id": "1"}
    outcome = prepare(lines({"messages": [USER, call, result, ANSWER]}), name="x.jsonl")
    assert outcome.rows() == [{"messages": [USER, {**call, "content": ""}, result, ANSWER]}]


def test_a_message_without_text_is_dropped_as_empty(prepare) -> None:
    empty = {"role": "assistant", "content": " "}
    outcome = prepare(lines({"messages": [USER, ANSWER]}, {"messages": [USER, empty]}), name="x.jsonl")
    assert outcome.report["dropped"]["drop_empty"]["examples"][0]["field"] == "messages[1]"


def test_prompts_and_completions(prepare) -> None:
    assert prepare("question,answer\nHi?,Hello.\nWho?,Me.\n").rows()[0] == {"prompt": "Hi?", "completion": "Hello."}
    chat = prepare(lines({"prompt": "Hi?", "response": "Hello."}), "--task", "chat", name="x.jsonl")
    assert chat.rows() == [{"messages": [USER, ANSWER]}]
    messages = prepare(lines({"prompt": [USER], "completion": [ANSWER]}), name="x.jsonl")
    assert messages.rows() == [{"prompt": [USER], "completion": [ANSWER]}]


HUMAN = "\n\nHuman: Hi?\n\nAssistant:"
GOOD, BAD = {"role": "assistant", "content": "Hello."}, {"role": "assistant", "content": "Go."}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "Hi?", "chosen": "Hello.", "rejected": "Go."}, ("Hi?", "Hello.", "Go.")),
        ({"instruction": "Hi?", "input": "x", "chosen": "a", "rejected": "b"}, ("Hi?\n\nx", "a", "b")),
        ({"chosen": f"{HUMAN} Hello.", "rejected": f"{HUMAN} Go."}, (HUMAN, "Hello.", "Go.")),
        ({"chosen": [USER, GOOD], "rejected": [USER, BAD]}, ([USER], [GOOD], [BAD])),
        ({"prompt": "Hi?", "chosen": [USER, GOOD], "rejected": [USER, BAD]}, ([USER], [GOOD], [BAD])),
        (
            {
                "conversations": [{"from": "human", "value": "Hi?"}],
                "chosen": {"from": "gpt", "value": "Hello."},
                "rejected": {"from": "gpt", "value": "Go."},
            },
            ([USER], [GOOD], [BAD]),
        ),
    ],
)
def test_forms_of_preferences(prepare, row, expected) -> None:
    outcome = prepare(lines(row), "--clean", "strip" if row.get("prompt") else "drop_empty", name="x.jsonl")
    found = outcome.rows()[0]
    strip = (lambda v: v.strip(" ")) if isinstance(expected[1], str) else (lambda v: v)
    assert (found["prompt"], strip(found["chosen"]), strip(found["rejected"])) == expected


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "rejected"),
        ({"chosen": "b", "rejected": "c"}, "prompt"),
        ({"chosen": [USER, GOOD], "rejected": [GOOD]}, "prompt"),
        ({"prompt": "a", "chosen": "b", "rejected": None}, "rejected"),
    ],
)
def test_preferences_that_are_wrong(prepare, row, field) -> None:
    outcome = prepare(lines(row), name="x.jsonl")
    assert outcome.code == 2
    assert f"x.jsonl:1 {field} " in outcome.text


def test_liked_or_not(prepare) -> None:
    liked, not_liked = {"prompt": "a", "completion": "b", "label": True}, {"prompt": "a", "completion": "c", "label": 0}
    outcome = prepare(lines(liked, not_liked), name="x.jsonl")
    assert [row["label"] for row in outcome.rows()] == [True, False]


def test_answers_to_one_prompt_stay_in_one_split(prepare) -> None:
    rows = [{"prompt": f"p{n % 20}", "completion": f"c{n}"} for n in range(60)]
    outcome = prepare(lines(*rows), name="x.jsonl", split=True)
    prompts = {split: {row["prompt"] for row in outcome.rows(split)} for split in ("train", "validation", "test")}
    assert not prompts["train"] & (prompts["validation"] | prompts["test"])
    assert [len(outcome.rows(split)) for split in prompts] == [48, 6, 6]
