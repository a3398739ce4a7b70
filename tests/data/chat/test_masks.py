"""Which tokens of a conversation are learnt, by hand: with marks, without, and where templates rewrite turns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chat_rows import CHATML, INSTRUCT, MARKED, THOUGHTLESS, talk
from supertrainer.core.errors import DataError
from supertrainer.data.chat.rendering import render_prompt
from supertrainer.data.collation import collate

TWO_TURNS = talk("Hi", "Hello", "Bye", "So long", system="Be brief")
# Marks without the token that ends the turn.
HALF_MARKED = MARKED.replace("<|im_end|>{% endgeneration %}", "{% endgeneration %}<|im_end|>")
# One mark for all answers of a conversation: they can't be told apart by it.
MARKED_ONCE = CHATML.replace("{% for m", "{% generation %}{% endgeneration %}{% for m")
# The last turn has no line break after it.
UNEVEN = CHATML.replace("<|im_end|>\n{% endfor", "<|im_end|>{{ '' if loop.last else '\n' }}{% endfor")


@pytest.mark.parametrize("template", [CHATML, MARKED, HALF_MARKED, THOUGHTLESS, MARKED_ONCE, UNEVEN])
def test_the_answers_and_the_ends_of_their_turns_are_learnt(
    template: str, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    found = learnt(dataset([{"messages": TWO_TURNS}]), make_tokenizer(template))
    assert found == [["Hello<|im_end|>", "So long<|im_end|>"]]


def test_ids_and_labels_by_hand(dataset: Any, make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer()
    data = dataset([{"messages": talk("a", "b")}])
    row = data.encode(data.load()["train"], tokenizer)[0]
    letter = tokenizer.get_vocab()
    user, assistant, line = [letter[c] for c in "user"], [letter[c] for c in "assistant"], letter["Ċ"]
    prompt = [3, *user, line, letter["a"], 4, line, 3, *assistant, line]
    assert row["input_ids"] == [*prompt, letter["b"], 4, line]
    assert row["labels"] == [-100] * len(prompt) + [letter["b"], 4, -100]


@pytest.mark.parametrize(
    ("train_on", "expected"),
    [
        ("assistant", ["Hello<|im_end|>", "So long<|im_end|>"]),
        ("last", ["So long<|im_end|>"]),
        ("marked", ["Hello<|im_end|>"]),
    ],
)
@pytest.mark.parametrize("template", [CHATML, MARKED])
def test_what_is_learnt_is_chosen(
    train_on: str, expected: list[str], template: str, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    messages = talk("Hi", "Hello", "Bye", "So long")
    messages[1]["train"] = True
    assert learnt(dataset([{"messages": messages}], train_on=train_on), make_tokenizer(template)) == [expected]


def test_train_on_all_learns_every_token(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"messages": TWO_TURNS}], train_on="all")
    row = data.encode(data.load()["train"], make_tokenizer())[0]
    assert row["labels"] == row["input_ids"]


@pytest.mark.parametrize("mark", [{"train": False}, {"weight": 0}])
def test_an_answer_that_is_marked_as_not_to_be_learnt_is_left_out(
    mark: dict[str, Any], dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    messages = talk("Hi", "Hello", "Bye", "So long")
    messages[1] |= mark
    assert learnt(dataset([{"messages": messages}]), make_tokenizer()) == [["So long<|im_end|>"]]


def test_thoughts_that_a_template_leaves_out_of_earlier_turns(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    messages = talk("Hi", "<think>greet</think>\nHello \n", "Bye", "<think>part</think>\nSo long")
    found = learnt(dataset([{"messages": messages}]), make_tokenizer(THOUGHTLESS))
    assert found == [["Hello \n<|im_end|>", "<think>part</think>\nSo long<|im_end|>"]]


def test_a_template_that_looks_into_the_texts(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    """What is written beside a text depends on it, so frames around texts tell nothing."""
    template = CHATML.replace("{{ m.content }}", "{{ m.content }}({{ m.content | length }})")
    data = dataset([{"messages": talk("Hi", "Hello", "Bye", "So long")}])
    assert learnt(data, make_tokenizer(template)) == [["Hello(5)<|im_end|>", "So long(7)<|im_end|>"]]


def test_an_earlier_conversation_does_not_change_what_is_found_in_a_later_one(
    dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    rows = [
        {"messages": talk("Hi", "<think>x</think>\nHello", "a", "b")},
        {"messages": talk("Hi", " Hello \n", system="s")},
        {"messages": talk("<|im_end|>\n<|im_start|>assistant\n", "odd")},
        {"messages": talk("a ", "a", "a ", "a")},
    ]
    together = learnt(dataset(rows), make_tokenizer(THOUGHTLESS))
    alone = [learnt(dataset([row]), make_tokenizer(THOUGHTLESS))[0] for row in rows]
    assert together == alone
    assert together[1:] == [[" Hello \n<|im_end|>"], ["odd<|im_end|>"], ["a<|im_end|>", "a<|im_end|>"]]


COUNTING = "{{ messages | length }} turns\n" + CHATML  # no beginning of a conversation begins its text


def test_a_template_that_counts_turns(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    data = dataset([{"messages": talk("Hi", "Hello", "Bye", "So long")}])
    assert learnt(data, make_tokenizer(COUNTING)) == [["Hello<|im_end|>", "So long<|im_end|>"]]


def test_a_template_that_counts_turns_and_looks_into_the_texts_is_refused(dataset: Any, make_tokenizer: Any) -> None:
    template = COUNTING.replace("{{ m.content }}", "({{ m.content | length }}){{ m.content }}")
    data = dataset([{"messages": talk("Hi", "Hello")}])
    with pytest.raises(DataError, match=r"messages\[1\], an answer, can't be found[\s\S]*\(5\)Hello"):
        data.model_rows("train", make_tokenizer(template))


def test_a_template_that_trims_and_has_no_generation_prompt(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    messages = talk(" Hi ", " Hello\n", "Bye", "So long")
    tokenizer = make_tokenizer(INSTRUCT, eos="</s>")
    assert learnt(dataset([{"messages": messages}]), tokenizer) == [[" Hello</s>", " So long</s>"]]


def test_a_message_that_holds_the_answer_of_another(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    messages = talk("Say Hello<|im_end|>", "Hello", "assistant\nHello", "Hello")
    data = dataset([{"messages": messages}, {"messages": talk("a", "b")}])
    assert learnt(data, make_tokenizer())[0] == ["Hello<|im_end|>", "Hello<|im_end|>"]
    assert data.load().report.notes[-1] == (
        "train: 1 row holds special tokens written out in a message, which are read as such: "
        "train.jsonl:1 (<|im_end|>)."
    )


CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": null}'}}
WITH_CALLS = [
    {"role": "user", "content": "1 and 2?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "3"},
    {"role": "assistant", "content": "Three."},
]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
CALLING = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


# As reasoning models write it: an empty thought in the last turn only, results of tools as a user's.
THINKING = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}"
    "<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_calls_in_a_template_that_writes_the_last_turn_otherwise(
    dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    twice = [*WITH_CALLS[:3], *WITH_CALLS[1:]]
    call = '{"name": "add", "arguments": {"a": 1, "b": null}}<|im_end|>'
    answer = "<think>\n\n</think>\n\nThree.<|im_end|>"
    found = learnt(dataset([{"messages": twice, "tools": TOOLS}]), make_tokenizer(THINKING))
    assert found == [[call, call, answer]]
    ended = learnt(dataset([{"messages": WITH_CALLS[:2], "tools": TOOLS}]), make_tokenizer(THINKING))
    assert ended == [[f"<think>\n\n</think>\n\n{call}"]]


def test_calls_of_tools_are_learnt_and_results_are_not(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    data = dataset([{"messages": WITH_CALLS, "tools": TOOLS}])
    call = '{"name": "add", "arguments": {"a": 1, "b": null}}<|im_end|>'
    assert learnt(data, make_tokenizer(CALLING)) == [[call, "Three.<|im_end|>"]]


@pytest.mark.parametrize("name", ["chatml"])
def test_a_shipped_template_writes_calls(name: str, dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    data = dataset([{"messages": WITH_CALLS, "tools": TOOLS}], chat_template=name)
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": null}}\n</tool_call><|im_end|>'
    assert learnt(data, make_tokenizer(None)) == [[call, "Three.<|im_end|>"]]


@pytest.mark.parametrize("row", [{"messages": WITH_CALLS}, {"messages": talk("a", "b"), "tools": TOOLS}])
def test_a_template_that_leaves_out_tools_or_calls_is_refused(row: Any, dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([row])
    with pytest.raises(DataError, match=r"train\.jsonl:1[\s\S]*doesn't write .*tools, such as 'add'"):
        data.model_rows("train", make_tokenizer(CHATML))


def test_an_answer_that_is_not_in_the_text_is_refused_with_the_text(dataset: Any, make_tokenizer: Any) -> None:
    shouting = CHATML.replace("{{ m.content }}", "{{ m.content | upper if m.role == 'assistant' else m.content }}")
    data = dataset([{"messages": talk("Hi", "Hello", "x", "So long")}])
    rows = data.encode(data.load()["train"], make_tokenizer(shouting))  # every turn is written the same way
    assert len(rows) == 1
    twice = "{{ messages | length }}{% for n in '12' %}{% for m in messages %}{{ m.content }}{% endfor %}{% endfor %}"
    with pytest.raises(DataError, match=r"can't be found in the text that it writes:\n2HiHelloHiHello"):
        dataset([{"messages": talk("Hi", "Hello")}]).model_rows("train", make_tokenizer(twice))


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ messages | length }} turns", r"leaves out messages\[0\], of system, in the text that it writes:\n5 turns"),
        (CHATML.replace("in messages", "in messages if m.role != 'system'"), r"messages\[0\], of system"),
        (MARKED.replace("in messages", "in messages[:1] + messages[3:]"), r"messages\[1\], of user"),
        (CHATML.replace("in messages", "in [messages[0]] + messages[2:]"), r"messages\[1\], of user"),
    ],
)
def test_a_template_that_leaves_out_a_turn_is_refused(
    template: str, told: str, dataset: Any, make_tokenizer: Any
) -> None:
    rows = [{"messages": talk("First?", "One.", "Second?", "Two.", system="Be brief.")}]
    with pytest.raises(DataError, match=told):
        dataset(rows).model_rows("train", make_tokenizer(template))
    with pytest.raises(DataError, match="leaves out messages"):
        render_prompt(rows[0]["messages"][:4], make_tokenizer(template))


def test_turns_that_a_template_writes_otherwise_are_no_left_out_ones(dataset: Any, make_tokenizer: Any) -> None:
    quoted = CHATML.replace("{{ m.content }}", "{{ m.content | tojson if m.role == 'user' else m.content }}")
    rows = dataset([{"messages": talk('Say "a"\n', "a")}]).model_rows("train", make_tokenizer(quoted))
    assert len(rows) == 1


def test_a_turn_after_the_last_answer_is_read_and_not_learnt(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    data = dataset([{"messages": talk("Hi", "Hello", "Bye")}])
    tokenizer = make_tokenizer()
    assert learnt(data, tokenizer) == [["Hello<|im_end|>"]]
    [row] = data.encode(data.load()["train"], tokenizer)
    assert tokenizer.decode(row["input_ids"]).endswith("<|im_start|>user\nBye<|im_end|>\n")


@pytest.mark.parametrize(("train_on", "count"), [("assistant", 1), ("all", 1), ("last", 0)])
def test_answers_that_a_template_rewrites_are_counted(
    train_on: str, count: int, dataset: Any, make_tokenizer: Any
) -> None:
    thoughts = [f"<think>\n{n}\n</think>\n\nso {n}" for n in (1, 2)]
    data = dataset([{"messages": talk("a", thoughts[0], "b", thoughts[1])}], train_on=train_on)
    data.encode(data.load()["train"], make_tokenizer(THOUGHTLESS))
    told = [note for note in data.load().report.notes if "as the template rewrites them" in note]
    assert [note.split(" answers")[0] for note in told] == ["train: 1"] * count


def test_thoughts_of_their_own_field_that_are_left_out_are_counted(dataset: Any, make_tokenizer: Any) -> None:
    messages = talk("a", "b", "c", "d")
    messages[1]["reasoning_content"] = "earlier"
    data = dataset([{"messages": messages}])
    data.encode(data.load()["train"], make_tokenizer())
    assert "train: 1 answers are learnt as the template rewrites them" in data.load().report.notes[-1]


ARGUMENTS = {"a": 1, "b": None, "c": "it's"}
AS_OBJECT = "{{ c.function.arguments | tojson }}"
AS_EITHER = "{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"


@pytest.mark.parametrize("given", [ARGUMENTS, json.dumps(ARGUMENTS)], ids=["object", "text"])
@pytest.mark.parametrize(
    "arguments",
    [AS_OBJECT, AS_EITHER, "{{ c.function.arguments }}", "{{ '' + c.function.arguments }}"],
    ids=["object", "either", "written", "added"],
)
def test_arguments_of_calls_are_written_as_json(
    arguments: str, given: Any, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    template = CHATML.replace(
        "{{ m.content }}",
        f"{{% for c in m.tool_calls or () %}}{{{{ c.function.name }}}} {arguments}{{% endfor %}}{{{{ m.content }}}}",
    )
    call = {"type": "function", "function": {"name": "add", "arguments": given}}
    data = dataset([{"messages": [*talk("x"), {"role": "assistant", "content": "", "tool_calls": [call]}]}])
    assert learnt(data, make_tokenizer(template)) == [['add {"a": 1, "b": null, "c": "it\'s"}<|im_end|>']]


def test_a_template_that_raises_names_the_row_in_its_own_words(dataset: Any, make_tokenizer: Any) -> None:
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('No system turns') }}{% endif %}" + CHATML
    rows = [{"messages": talk("a", "b")}, {"messages": talk("a", "b", system="s")}]
    with pytest.raises(DataError, match=r"\(1\): train\.jsonl:2\.[\s\S]*No system turns"):
        dataset(rows).model_rows("train", make_tokenizer(strict))
    left = dataset(rows, on_malformed_rows="drop")
    assert len(left.model_rows("train", make_tokenizer(strict))) == 1
    assert left.load().report.notes[-1].startswith("train: 1 rows that the chat template can't render")


def test_the_end_of_a_turn_is_learnt_where_it_also_pads(dataset: Any, make_tokenizer: Any) -> None:
    tokenizer = make_tokenizer(pad="<|im_end|>")
    assert tokenizer.pad_token_id == tokenizer.eos_token_id == 4
    rows = dataset([{"messages": talk("a", "b")}, {"messages": talk("a", "longer")}]).model_rows("train", tokenizer)
    batch = collate([rows[0], rows[1]], pad_token_id=4)
    short = batch["labels"][0].numpy()
    assert np.count_nonzero(short == 4) == 1
    assert batch["input_ids"][0, -5:].tolist() == [4] * 5
    assert short[-5:].tolist() == [-100] * 5


@pytest.mark.parametrize("marks", [("{% generation %}", "{% endgeneration %}"), ("", "")], ids=["marked", "bare"])
def test_an_end_behind_white_space_is_learnt(
    marks: tuple[str, str], dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} "
        f"{marks[0]}{{{{ m.content }}}}{marks[1]} {{{{ eos_token }}}}{{% endif %}}{{% endfor %}}"
    )
    data = dataset([{"messages": talk("a", "b", "c", "d")}])
    assert learnt(data, make_tokenizer(template, eos="</s>")) == [[" b </s>", " d </s>"]]


@pytest.mark.parametrize("train_on", ["assistant", "all"])
def test_a_last_answer_that_a_template_lets_run_on_is_ended(
    train_on: str, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    tokenizer = make_tokenizer(template, eos="</s>")
    rows = [{"messages": talk("a", "b", "c", "d")}, {"messages": talk("a", "b", "c")}]
    data = dataset(rows, train_on=train_on)
    found = learnt(data, tokenizer)
    assert [row[-1].endswith(" d</s>") for row in found] == [True, False]
    ids = data.encode(data.load()["train"], tokenizer)["input_ids"]
    assert [row.count(tokenizer.eos_token_id) for row in ids] == [1, 0]


def test_a_template_that_refuses_others_is_left_as_it_is(dataset: Any, make_tokenizer: Any, learnt: Any) -> None:
    strict = "{% if messages[0].role != 'system' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    data = dataset([{"messages": talk("a", "b", system="s")}])
    assert learnt(data, make_tokenizer(strict, eos="</s>")) == [["b<|im_end|>"]]
    [row] = data.encode(data.load()["train"], make_tokenizer(strict, eos="</s>"))
    assert row["input_ids"].count(2) == 0, "no </s> beside the template's own end"


@pytest.mark.parametrize("trims", [False, True])
def test_a_token_that_begins_in_the_prompt_is_not_learnt(
    trims: bool, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    data = dataset([{"messages": talk("a", "bcd")}])
    assert learnt(data, make_tokenizer(template, merges=[("Ġ", "b")], trims=trims)) == [["cd<|im_end|>"]]
    assert "1 answers begin inside a token of the prompt" in data.load().report.notes[-1]
    assert learnt(dataset([{"messages": talk("a", "bcd")}]), make_tokenizer(template, trims=trims)) == [
        ["bcd<|im_end|>"]
    ]


@pytest.mark.parametrize("trims", [False, True])
def test_white_space_that_an_answer_begins_with_is_learnt_in_one_token(
    trims: bool, dataset: Any, make_tokenizer: Any, learnt: Any
) -> None:
    tokenizer = make_tokenizer(INSTRUCT, eos="</s>", merges=[("Ġ", "b")], trims=trims)
    assert learnt(dataset([{"messages": talk("a", "bcd")}]), tokenizer) == [[" bcd</s>"]]


def test_too_small_a_share_is_an_error_that_shows_a_row(dataset: Any, make_tokenizer: Any) -> None:
    data = dataset([{"messages": talk("x" * 90, "y")}], min_trained_share=0.2)
    with pytest.raises(DataError, match=r"1\.[0-9]+% of the tokens are learnt[\s\S]*⟦y<\|im_end\|>⟧"):
        data.model_rows("train", make_tokenizer())


def test_a_row_without_an_answer_is_an_error_or_dropped(dataset: Any) -> None:
    rows = [{"messages": talk("a", "b")}, {"messages": talk("a")}]
    with pytest.raises(DataError, match=r"rows without an answer to learn \(1\): train\.jsonl:2"):
        dataset(rows).load()
    left = dataset(rows, on_nothing_to_learn="drop").load()
    assert left.report.dropped == {"train": {"without an answer to learn": 1}}


def test_all_splits_are_checked_before_the_train_rows_are_given(
    dataset: Any, make_tokenizer: Any, tmp_path: Path
) -> None:
    (tmp_path / "validation.jsonl").write_text(json.dumps({"messages": talk("a", "b" * 99)}))
    data = dataset([{"messages": talk("a", "b")}], source=str(tmp_path), max_length=60)
    with pytest.raises(DataError, match=r"validation: rows longer than dataset\.max_length=60 tokens \(1\)"):
        data.model_rows("train", make_tokenizer())
